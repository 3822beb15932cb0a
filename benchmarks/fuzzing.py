# SPDX-License-Identifier: Apache-2.0
"""What the fuzzers of text share: the loop over seeds, commands run in this process, and limits of time and memory."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import typer

from memc.cli import main as memc_main

# Typer makes all commands anew for each command line, which is half of what a short one takes.
typer.main.get_command = lru_cache(maxsize=1)(typer.main.get_command)

SECONDS = 30
"""What one case may take."""

GROWTH = 8 * 2**30
"""Bytes of address space that the process may grow by, so that a huge shape that is allocated after all shows."""

CODES = frozenset({0, 1, 2, 3, 4})


class TimeLimit(BaseException):
    """A case took too long. No `except Exception` hides it."""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


@dataclass
class Case:
    """One seed: where its files go, and what was wrong."""

    seed: int
    folder: Path
    found: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """How often the case came how far, for the summary."""


def run_memc(arguments: Sequence[str]) -> Done:
    """A memc command in this process, with its output captured."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = memc_main(list(arguments))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        out.flush()
        err.flush()
    texts = [stream.detach().getvalue().decode("utf-8", "replace") for stream in (out, err)]
    return Done(code, *texts)


def wrong_with(done: Done, codes: frozenset[int] = CODES) -> str | None:
    """What a user must not see of a command: a traceback, another exit code, or more than a line and an excerpt."""
    lines = done.err.splitlines()
    last = lines[-1][-300:] if lines else ""
    if done.code not in codes or "Traceback" in done.err or "internal error" in done.err:
        return f"exit code {done.code}: {last}"
    errors = [line for line in lines if line.startswith("memc: error: ")]
    if done.code and (len(errors) != 1 or len(lines[0]) < 20):
        return f"exit code {done.code} with {len(errors)} error lines: {done.err[:300]!r}"
    if "out of memory on this machine" in done.err:
        return f"memory: {last}"
    return None


@contextlib.contextmanager
def limited(seed: int, seconds: int = SECONDS) -> Iterator[None]:
    """Raise TimeLimit after so many seconds of processor time, which a busy machine does not use up; end the process if the
    case has not come back by twenty times that on the clock: it waits, or hangs in native code."""

    def over(*_: object) -> None:
        raise TimeLimit(f"took more than {seconds} s")

    def end() -> None:
        os.write(1, f"seed {seed}: hangs\n".encode())
        os._exit(1)

    watch = threading.Timer(20 * seconds, end)
    watch.daemon = True
    watch.start()
    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        watch.cancel()


def limit_memory() -> None:
    """Let the process grow by `GROWTH` from here on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + GROWTH, hard))


def run_case(check: Callable[[Case], None], seed: int, folder: Path, seconds: int = SECONDS) -> Case:
    """Check one seed in an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    case = Case(seed, folder)
    try:
        with limited(seed, seconds):
            check(case)
    except TimeLimit as error:
        case.found.append(str(error))
    except Exception:
        case.found.append(traceback.format_exc(limit=-6))
    return case


def fuzz(check: Callable[[Case], None], doc: str | None, what: str) -> int:
    """The command line of a fuzzer: 1 if any case failed. A failing case's files stay in the folder that --save names."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--save", type=Path, help="keep the files of failing cases in this folder")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    began = time.monotonic()
    limit_memory()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(args.first, args.first + args.count):
            folder = Path(scratch) / str(seed)
            case = run_case(check, seed, folder)
            counts += case.counts
            if case.found:
                failed += 1
                print(f"seed {seed}: {len(case.found)} faults; {case.found[0]}", flush=True)
                if args.save:
                    args.save.mkdir(parents=True, exist_ok=True)
                    with contextlib.suppress(OSError):
                        folder.rename(args.save / str(seed))
            shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    print(f"{failed} of {args.count} {what} fail; {seconds:.0f} s; " + ", ".join(f"{k} {n}" for k, n in counts.items()))
    return 1 if failed else 0

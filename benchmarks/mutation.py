# SPDX-License-Identifier: Apache-2.0
"""Whether tests notice faults: a seeded sample of mutants of the sources, each against the tests that cover its file.

    python benchmarks/mutation.py ir/verify passes runtime/codegen --count 200 --seed 1
    python benchmarks/mutation.py ir/verify/memory_plan.py --count 0 --jobs 2       every mutant of one file

The repository is not written to: each worker has a copy of the package as it installs, which hides the installed one. A mutant
that every test passes has *survived*: either a test is missing or the fault changes nothing that anybody can see. Survivors are
listed with their difference. `mutation_tests.py` says which tests are run for a file.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import Mutant, mutants_of
from mutation_tests import Tests, sources, test_texts, tests_of

ROOT = Path(__file__).resolve().parents[1]

PARTS = {"memc": "python/memc", "memc/ir": "ir", "memc/passes": "passes", "memc/runtime": "runtime"}
"""Where the repository's folders install."""

MEMORY = 12 * 2**30
"""Bytes of address space of a test run, since a loop that a fault makes endless may also fill memory."""

HIDE_INSTALLED = """\
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
"""
"""What the copy's `sitecustomize` does: an editable install would come before the copy."""

KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"


@dataclass(frozen=True)
class Trial:
    """A mutant of a file, named from the repository's root, and what came of it."""

    path: str
    mutant: Mutant
    verdict: str
    seconds: float


def commands(tests: Tests) -> list[list[str]]:
    """What runs them, the quick ones first."""
    found = []
    if tests.pytest:
        options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        found.append([sys.executable, "-m", "pytest", *options, *tests.pytest])
    if tests.golden:
        found.append([str(Path(sys.executable).with_name("lit")), "-q", *tests.golden])
    return found


class Copy:
    """The package as it installs, in a folder of its own, with at most one fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, source in PARTS.items():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, folder / name, ignore=ignored, dirs_exist_ok=True)
        from memc.native import library_path

        (folder / "memc" / library_path().name).symlink_to(library_path())
        (folder / "sitecustomize.py").write_text(HIDE_INSTALLED)
        # A mutant may be as long as its source and of the same second: its time and size say nothing.
        compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "memc"]
        subprocess.run([sys.executable, *compiled], cwd=folder, check=True, env=self.environment(True))

    def environment(self, writes: bool = False) -> dict[str, str]:
        """Variables under which Python finds the copy and, unless `writes`, leaves no compiled files behind."""
        own = {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "" if writes else "1"}

    def write(self, path: str, text: str) -> None:
        """Put `text` in place of a source file."""
        top = Path(path).parts[0]
        target = self.folder / (Path(path).relative_to("python") if top == "python" else Path("memc") / path)
        target.write_text(text)
        for stale in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            stale.unlink()

    def passes(self, tests: Tests, seconds: float) -> bool | None:
        """Whether all tests pass; None if they take longer than `seconds`."""
        until = time.monotonic() + seconds
        for command in commands(tests):
            done = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
            )
            try:
                if done.wait(max(0.0, until - time.monotonic())) != 0:
                    return False
            except subprocess.TimeoutExpired:
                return None
            finally:
                if done.poll() is None:
                    os.killpg(done.pid, signal.SIGKILL)
                    done.wait()
        return True


def trials(chosen: Sequence[tuple[str, Mutant]], tests: Mapping[str, Tests], args: argparse.Namespace) -> list[Trial]:
    """Try every mutant but those of files whose tests fail without one, which are named."""
    copies: queue.Queue[Copy] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="memc-mutation-") as scratch:
        for number in range(args.jobs):
            copies.put(Copy(Path(scratch) / str(number)))
        originals = {path: (ROOT / path).read_text() for path, _ in chosen}
        limits: dict[str, float] = {}

        def baseline(alone: Tests) -> float | None:
            copy, began = copies.get(), time.monotonic()
            passed = copy.passes(alone, args.seconds)
            copies.put(copy)
            took = time.monotonic() - began
            if args.verbose:
                print(f"{took:6.1f} s: {', '.join((*alone.pytest, *alone.golden))}", flush=True)
            return took if passed else None

        def tried(item: tuple[str, Mutant]) -> Trial:
            path, mutant = item
            copy, began = copies.get(), time.monotonic()
            copy.write(path, mutant.text)
            passed = copy.passes(tests[path], limits[path])
            copy.write(path, originals[path])
            copies.put(copy)
            verdict = {True: SURVIVED, False: KILLED, None: TIMED_OUT}[passed]
            trial = Trial(path, mutant, verdict, time.monotonic() - began)
            if args.verbose:
                print(f"{trial.seconds:6.1f} s: {path}:{mutant.line} {mutant.kind}, {verdict}", flush=True)
            if verdict == SURVIVED:
                print(f"survived: {path}, {mutant.kind}\n{mutant.diff(originals[path], path)}", flush=True)
            return trial

        with ThreadPoolExecutor(args.jobs) as pool:
            parts = list(dict.fromkeys(part for path in originals for part in tests[path].parts()))
            took = dict(zip(parts, pool.map(baseline, parts)))
            for path in originals:
                limits.update(_limit(path, {part: took[part] for part in tests[path].parts()}, args.seconds))
            return list(pool.map(tried, [item for item in chosen if item[0] in limits]))


def _limit(path: str, took: Mapping[Tests, float | None], most: float) -> dict[str, float]:
    """Seconds for a mutant of `path` whose tests take so long without a fault; none if one of them fails, which is named."""
    known = [seconds for seconds in took.values() if seconds is not None]
    if len(known) == len(took):
        return {path: min(most, 20 + 4 * sum(known))}
    failing = ", ".join(
        name for part, seconds in took.items() if seconds is None for name in (*part.pytest, *part.golden)
    )
    print(f"{path}: without a fault, {failing} fails or takes over {most:.0f} s", flush=True)
    return {}


def summary(found: Sequence[Trial], without_tests: Sequence[str], command: str) -> str:
    """Verdicts by file as a table, and in all."""
    counts: dict[str, Counter[str]] = {}
    for trial in found:
        counts.setdefault(trial.path, Counter())[trial.verdict] += 1
    rows = [
        f"{time.strftime('%Y-%m-%d')}, `{command}`",
        "",
        "| file | killed | timed out | survived |",
        "| --- | --: | --: | --: |",
    ]
    rows += [f"| {p} | {c[KILLED]} | {c[TIMED_OUT]} | {c[SURVIVED]} |" for p, c in sorted(counts.items())]
    if without_tests:
        rows += ["", f"No test of their own, so not tried: {', '.join(without_tests)}."]
    whole = sum(counts.values(), Counter[str]())
    rows += [
        "",
        f"{score(found):.1f} % of {len(found)} mutants noticed: {whole[KILLED]} killed, {whole[TIMED_OUT]} timed out, ",
    ]
    rows[-1] += f"{whole[SURVIVED]} survived"
    return "\n".join(rows)


def score(found: Sequence[Trial]) -> float:
    """Percent of mutants that were noticed."""
    return 100 * sum(trial.verdict != SURVIVED for trial in found) / max(1, len(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 1 if fewer than --least percent of the mutants are noticed, or some could not be tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["ir/verify", "passes", "runtime/codegen"])
    parser.add_argument("--count", type=int, default=200, help="mutants to try; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="what sets the sample")
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="the longest that the tests of one mutant may take"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.0, help="percent of mutants that have to be noticed")
    parser.add_argument("--verbose", action="store_true", help="say what each test and each mutant took")
    args = parser.parse_args(arguments)
    texts = test_texts()
    tests = {path: tests_of(path, texts) for path in sources(args.paths)}
    mutants = [(p, mutant) for p, of in tests.items() if commands(of) for mutant in mutants_of((ROOT / p).read_text())]
    chosen = mutants
    if args.count and args.count < len(mutants):
        chosen = random.Random(args.seed).sample(mutants, args.count)
    without_tests = [p for p, of in tests.items() if not commands(of) and mutants_of((ROOT / p).read_text())]
    command = " ".join(["python benchmarks/mutation.py", *(sys.argv[1:] if arguments is None else arguments)])
    found = trials(sorted(chosen, key=lambda item: item[0]), tests, args)
    print(summary(found, without_tests, command))
    return int(score(found) < args.least or len(found) < len(chosen))


if __name__ == "__main__":
    sys.exit(main())

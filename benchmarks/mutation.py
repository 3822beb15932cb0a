# SPDX-License-Identifier: Apache-2.0
"""Whether tests notice faults: a seeded sample of mutants of the sources, each against the tests that cover its file.

    python benchmarks/mutation.py ir/verify passes runtime/codegen --count 200 --seed 1
    python benchmarks/mutation.py ir/verify/memory_plan.py --count 0 --jobs 2       every mutant of one file

The repository is not written to: each worker has a copy of the package as it installs, which hides the installed one. A mutant
that every test passes has *survived*: either a test is missing or the fault changes nothing that anybody can see. Survivors are
listed with their difference. A file's tests are the one at the same place under tests/unit and the golden test of the pass that it
holds, else those that name its module, else those of its folder.
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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import Mutant, mutants_of

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


@dataclass(frozen=True)
class Tests:
    """What is run for a file."""

    pytest: tuple[str, ...]
    golden: tuple[str, ...]

    def commands(self) -> list[list[str]]:
        """The quick ones first."""
        found = []
        if self.pytest:
            options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
            found.append([sys.executable, "-m", "pytest", *options, *self.pytest])
        if self.golden:
            found.append([str(Path(sys.executable).with_name("lit")), "-q", *self.golden])
        return found


def sources(paths: Iterable[str]) -> list[str]:
    """The Python files under `paths`, relative to the root. Raises FileNotFoundError for a path that does not exist."""
    found: set[Path] = set()
    for path in paths:
        whole = ROOT / path
        if not whole.exists():
            raise FileNotFoundError(f"{path}: no such file or folder under {ROOT}")
        found |= set(whole.rglob("*.py")) if whole.is_dir() else {whole}
    return [str(path.relative_to(ROOT)) for path in sorted(found)]


def module_of(path: str) -> str:
    """The name under which a file installs."""
    parts = Path(path).with_suffix("").parts
    parts = parts[1:] if parts[0] == "python" else ("memc", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tests_of(path: str, texts: Mapping[str, str]) -> Tests:
    """The tests of a file: its own; if it has none, those that name its module; else all of its folder.

    `texts` has all files under tests/unit and tests/golden. A golden test is its pass's own.
    """
    file, module = Path(path), module_of(path)
    place = Path("tests/unit") / (file.relative_to("python") if file.parts[0] == "python" else file)
    golden = tuple(sorted(p for p in texts if p.endswith(".memir") and Path(p).stem == file.stem.replace("_", "-")))
    own = tuple(p for p in texts if p == str(place.with_name(f"test_{file.name}")))
    if own or golden:
        return Tests(own, golden)
    unit = {p: text for p, text in sorted(texts.items()) if Path(p).name.startswith("test_")}
    parent, _, name = module.rpartition(".")
    named = (f"from {module} import", f"import {module}\n", f"from {parent} import {name}\n")
    chosen = [p for p, text in unit.items() if any(words in text for words in named)]
    return Tests(tuple(chosen or [p for p in unit if Path(p).parent == place.parent]), ())


def test_texts() -> dict[str, str]:
    """Texts of all tests that may be chosen, by path from the root."""
    folders = [path for top in ("unit", "golden") for path in sorted((ROOT / "tests" / top).rglob("*"))]
    return {str(p.relative_to(ROOT)): p.read_text() for p in folders if p.suffix in (".py", ".memir")}


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
        for command in tests.commands():
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
        limits: dict[str, float] = {}
        originals = {path: (ROOT / path).read_text() for path, _ in chosen}

        def baseline(path: str) -> None:
            copy, began = copies.get(), time.monotonic()
            passed = copy.passes(tests[path], args.seconds)
            copies.put(copy)
            if not passed:
                print(f"{path}: its tests fail without a fault, or take over {args.seconds:.0f} s", flush=True)
                return
            limits[path] = min(args.seconds, 20 + 4 * (time.monotonic() - began))

        def tried(item: tuple[str, Mutant]) -> Trial:
            path, mutant = item
            copy, began = copies.get(), time.monotonic()
            copy.write(path, mutant.text)
            passed = copy.passes(tests[path], limits[path])
            copy.write(path, originals[path])
            copies.put(copy)
            verdict = {True: SURVIVED, False: KILLED, None: TIMED_OUT}[passed]
            trial = Trial(path, mutant, verdict, time.monotonic() - began)
            if verdict == SURVIVED:
                print(f"survived: {path}, {mutant.kind}\n{mutant.diff(originals[path], path)}", flush=True)
            return trial

        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(baseline, originals))
            return list(pool.map(tried, [item for item in chosen if item[0] in limits]))


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
    args = parser.parse_args(arguments)
    texts = test_texts()
    tests = {path: tests_of(path, texts) for path in sources(args.paths)}
    mutants = [(p, mutant) for p, of in tests.items() if of.commands() for mutant in mutants_of((ROOT / p).read_text())]
    chosen = mutants
    if args.count and args.count < len(mutants):
        chosen = random.Random(args.seed).sample(mutants, args.count)
    without_tests = [p for p, of in tests.items() if not of.commands() and mutants_of((ROOT / p).read_text())]
    command = " ".join(["python benchmarks/mutation.py", *(sys.argv[1:] if arguments is None else arguments)])
    found = trials(sorted(chosen, key=lambda item: item[0]), tests, args)
    print(summary(found, without_tests, command))
    return int(score(found) < args.least or len(found) < len(chosen))


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Address assignment: every solver's peak and time on MiniMalloc's problems, traces, generated problems and models.

    python benchmarks/placement.py [--traces DIR] [--models DIR] [--counts 1000 10000 ...] [--long 1000 10000 ...] > FILE.md

Prints Markdown. A gap is the percentage of the peak above the lower bound that `auto` proves. Every plan is checked.
Peers: `tflite` is TFLite's greedy by size (`greedy_by_size.py`); onnxsim's planner takes ONNX models only, so it is
in the table of models (`--models`, with the folders and the cache that `arena.py` takes). Generated problems run in a
process of their own, whose largest resident set is its memory; `first-fit` is left out where it is quadratic.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from greedy_by_size import greedy_by_size
from planning_problems import LONG, SHAPES, overlap_pairs, read_problem, with_alignments, with_fixed, with_gaps

from memc.solvers.placement import MAX_BYTES, Problem, Solution, check, lower_bound, solve

HEURISTICS = ["first-fit", "first-fit-area", "first-fit-lifetime", "first-fit-given", "best-fit"]
MINIMALLOC = Path(__file__).resolve().parent / "data" / "minimalloc"
MOST_PAIRS = 1 << 22  # Live together: beyond, first fit takes tens of seconds, or far longer on sparse problems.
MOST_FOR_PEER = 10_000  # Buffers: the peer is quadratic and in Python.


@dataclass(frozen=True)
class Run:
    """One solver on one problem."""

    solution: Solution
    seconds: float
    """Wall time, median of the repetitions."""
    cpu: float
    """Seconds of all threads, median likewise."""


def run(problem: Problem, solver: str, repeat: int = 1, time_limit: float | None = None) -> Run:
    """Solves and checks; raises RuntimeError for a plan that does not hold. Over the capacity is no such plan."""
    walls, cpus = [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()
        if solver == "tflite":
            solution = greedy_by_size(problem)
        else:
            solution = solve(problem, solver, time_limit=time_limit)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    result = check(replace(problem, capacity=MAX_BYTES), solution)
    if not result.ok:
        raise RuntimeError(f"{solver}: {result}")
    return Run(solution, statistics.median(walls), statistics.median(cpus))


def percent(peak: int, bound: int) -> str:
    """The gap; two digits, but never a rounded zero."""
    gap = 100 * (peak - bound) / bound if bound else 0.0
    return "0" if gap == 0 else f"{gap:.2f}" if gap >= 0.005 else "<0.01"


def table(columns: list[str], rows: Iterable[list[str]]) -> None:
    """Prints rows as they come; the first column is text."""
    print(f"\n| {' | '.join(columns)} |\n| --- |{' --: |' * (len(columns) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def compared(name: str, problem: Problem, repeat: int, time_limit: float | None) -> tuple[list[str], Run]:
    """The row of a problem of moderate size, and `auto`'s run."""
    auto = run(problem, "auto", repeat, time_limit)
    bound = auto.solution.lower_bound
    gaps = [percent(run(problem, solver).solution.peak, bound) for solver in ["tflite", *HEURISTICS]]
    proven = "yes" if auto.solution.proven_optimal else "no"
    row = [name, f"{len(problem.buffers):,}", f"{bound:,}", *gaps, percent(auto.solution.peak, bound), proven]
    return [*row, f"{auto.seconds:.3f}", f"{auto.cpu:.3f}"], auto


COMPARED = ["problem", "buffers", "lower bound", "tflite", *HEURISTICS, "`auto`", "proven", "s", "CPU s"]


def minimalloc(repeat: int, time_limit: float | None) -> None:
    capacity = 1 << 20
    print(f"\n## MiniMalloc's problems, capacity {capacity:,}\n")
    print(
        "MiniMalloc itself, on a machine of the same kind (two cores): all 11 within the capacity, 0.6 to 4.8 s each, 26 s"
        " in all. Here `auto` is given the capacity and may stop at the first plan that fits it; `fits` says whether it did."
    )
    runs = []

    def rows() -> Iterable[list[str]]:
        for path in sorted(MINIMALLOC.glob("?.*.csv")):
            row, auto = compared(path.name[0], read_problem(path, capacity=capacity), repeat, time_limit)
            runs.append(auto)
            yield [*row, "yes" if auto.solution.peak <= capacity else "no"]

    table([*COMPARED, "fits"], rows())
    _summary(runs)


def traces(folder: Path, repeat: int, time_limit: float | None) -> None:
    print("\n## Traces of training steps (PyTorch, batch 1 and 32)")
    runs = []

    def rows() -> Iterable[list[str]]:
        for path in sorted(folder.glob("*.csv")):
            row, auto = compared(path.stem, read_problem(path), repeat, time_limit)
            runs.append(auto)
            yield row

    table(COMPARED, rows())
    _summary(runs)


def _summary(runs: list[Run]) -> None:
    seconds = [one.seconds for one in runs]
    print(
        f"\n`auto`: {sum(one.solution.proven_optimal for one in runs)} of {len(runs)} proven optimal; {sum(seconds):.2f} s in "
        f"all, median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s; {sum(one.cpu for one in runs):.2f} "
        "CPU seconds in all."
    )


def generated_row(index: int, count: int, time_limit: float | None) -> tuple[list[str], float]:
    """The row of one generated problem and `auto`'s CPU seconds; meant for a fresh process."""
    shape = SHAPES[index]
    problem = shape.problem(count)
    auto = run(problem, "auto", time_limit=time_limit)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    bound = auto.solution.lower_bound
    best = run(problem, "best-fit")
    first = peer = "-"
    if overlap_pairs(problem) <= MOST_PAIRS:
        first = percent(run(problem, "first-fit").solution.peak, bound)
    if count <= MOST_FOR_PEER:
        peer = percent(run(problem, "tflite").solution.peak, bound)
    gaps = [peer, first, percent(best.solution.peak, bound), percent(auto.solution.peak, bound)]
    proven = "yes" if auto.solution.proven_optimal else "no"
    row = [shape.name, shape.family, f"{count:,}", *gaps, proven, f"{best.cpu:.3f}", f"{auto.seconds:.3f}"]
    return [*row, f"{auto.cpu:.3f}", f"{memory:,.0f}"], auto.cpu


def generated(counts: list[int], time_limit: float | None) -> None:
    print("\n## Generated problems\n")
    print("MiB is the largest resident set of a process that makes the problem and plans it, Python included.")
    spent: dict[tuple[int, int], float] = {}

    def rows() -> Iterable[list[str]]:
        context = multiprocessing.get_context("spawn")
        for index in range(len(SHAPES)):
            for count in counts:
                with context.Pool(1) as pool:
                    row, spent[index, count] = pool.apply(generated_row, (index, count, time_limit))
                yield row

    gaps = ["tflite", "first-fit", "best-fit", "`auto`"]
    table(["shape", "family", "buffers", *gaps, "proven", "best-fit CPU s", "s", "CPU s", "MiB"], rows())
    print("\nGrowth of `auto`: CPU nanoseconds over n log2 n. A row that does not rise to the right grows no faster.")
    table(
        ["shape", *(f"{count:,}" for count in counts)],
        (
            [shape.name, *(f"{1e9 * spent[index, n] / (n * math.log2(n)):.0f}" for n in counts)]
            for index, shape in enumerate(SHAPES)
        ),
    )


def long_problems(counts: list[int], time_limit: float | None) -> None:
    """Best fit's and `auto`'s gaps where few buffers are live at a time."""
    print("\n## Problems that are long in time\n")
    print(
        "Gaps are above the largest live set. With `alignments`, half of the buffers lie at multiples of 4,096 bytes; with"
        " `gaps`, half of those that live for three steps or more are not live in between; with `fixed`, every fiftieth buffer"
        " lies where the plan found before has it."
    )

    def rows() -> Iterable[list[str]]:
        for shape in LONG:
            for count in counts:
                problem = shape.problem(count)
                found = run(problem, "auto", time_limit=time_limit)
                yield long_row(shape.name, problem, found)
                if count != counts[0]:
                    continue
                fixed = with_fixed(problem, found.solution.offset_array())
                kinds = [("alignments", with_alignments(problem)), ("gaps", with_gaps(problem)), ("fixed", fixed)]
                for kind, variant in kinds:
                    yield long_row(f"{shape.name}, {kind}", variant, run(variant, "auto", time_limit=time_limit))

    table(["shape", "buffers", "best-fit", "`auto`", "proven", "s", "CPU s"], rows())


def long_row(name: str, problem: Problem, found: Run) -> list[str]:
    bound = lower_bound(problem)
    gaps = [percent(run(problem, "best-fit").solution.peak, bound), percent(found.solution.peak, bound)]
    proven = "yes" if found.solution.proven_optimal else "no"
    return [name, f"{len(problem.buffers):,}", *gaps, proven, f"{found.seconds:.3f}", f"{found.cpu:.3f}"]


def models(folder: Path, cache: Path) -> None:
    """Bytes at -O2; onnxsim plans its own simplification of the model, outputs included."""
    from arena import onnxsim_arena, plan
    from models import select

    from memc.ir.errors import MemcError

    print("\n## Models at -O2, batch 1\n")
    print("onnxsim's plan holds the outputs; `arena+out` adds them to memc's arena for a comparison on equal terms.")

    def rows() -> Iterable[list[str]]:
        for model in select([]):
            try:
                path = model.path(folder, cache)
                report, outputs = plan(model, path, 1, 2)
            except (MemcError, FileNotFoundError) as error:
                print(f"{model.name}: {error}", file=sys.stderr)
                continue
            peer = onnxsim_arena(model, path, 1)
            gap = percent(report.arena_bytes, report.lower_bound_bytes)
            total = report.arena_bytes + outputs
            sizes = [f"{report.lower_bound_bytes:,}", gap, f"{total:,}", f"{peer:,}" if peer else "-"]
            yield [model.name, *sizes, f"{total / peer:.3f}" if peer else "-"]

    table(["model", "lower bound", "`auto`", "arena+out", "onnxsim", "ratio"], rows())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder of CSV files: id,lower,upper,size")
    parser.add_argument("--models", type=Path, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--counts", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--long", type=int, nargs="*", default=[10_000, 1_000, 50_000, 200_000], help="counts likewise")
    parser.add_argument("--repeat", type=int, default=5, help="of `auto`, where a table gives medians (default 5)")
    parser.add_argument("--time-limit", type=float, help="seconds for `auto` (default: bounded by work)")
    args = parser.parse_args()
    print("# Address assignment\n\n    python benchmarks/placement.py " + " ".join(sys.argv[1:]))
    print(
        "\nGaps in percent above the lower bound. Every plan was checked. `tflite` is TFLite's greedy by size. Times of `auto`"
        f" are medians of {args.repeat} runs, once for generated problems: wall and, of all threads, CPU seconds."
    )
    minimalloc(args.repeat, args.time_limit)
    if args.traces:
        traces(args.traces, args.repeat, args.time_limit)
    if args.counts:
        generated(args.counts, args.time_limit)
    if args.long:
        long_problems(args.long, args.time_limit)
    if args.models:
        models(args.models, args.cache)


if __name__ == "__main__":
    main()

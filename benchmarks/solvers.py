# SPDX-License-Identifier: Apache-2.0
"""Every address solver on the storages of every model at -O2: the gap above the lower bound and the duration.

    python benchmarks/solvers.py MODEL.onnx ...

Open dimensions are 1 where that can be. Models that do not import are named on stderr and left out.
"""

from __future__ import annotations

import argparse
import sys
import time

import memc
from memc.ir.errors import MemcError
from memc.ir.liveness import ALIGNMENT, lifetimes
from memc.passes.pipelines import pipeline
from memc.solvers.placement import Buffer, Problem, lower_bound, solve, solver_names


def problem_of(path: str) -> Problem:
    """The storages of a model as they are before addresses are assigned."""
    manager = memc.PassManager.parse(pipeline(2))
    manager.passes = [item for item in manager.passes if item.name != "assign-addresses"]
    module = memc.import_onnx(path)
    manager.run(module)
    return Problem([Buffer(life.nbytes, life.lower, life.upper) for life in lifetimes(module.main)], ALIGNMENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx")
    problems = []
    for path in parser.parse_args().models:
        try:
            problems.append(problem_of(path))
        except MemcError as error:
            print(f"{path}: {error}", file=sys.stderr)
    bounds = [lower_bound(problem) for problem in problems]
    print(f"{len(problems)} problems, at most {max(len(p.buffers) for p in problems)} buffers\n")
    print("| solver | bound met | mean gap % | largest gap % | slowest ms |")
    print("| --- | --- | --- | --- | --- |")
    for name in solver_names():
        gaps, slowest = [], 0.0
        for problem, bound in zip(problems, bounds):
            start = time.perf_counter()
            peak = solve(problem, name).peak
            slowest = max(slowest, time.perf_counter() - start)
            gaps.append(100 * (peak - bound) / bound if bound else 0.0)
        met = sum(gap == 0 for gap in gaps)
        print(f"| `{name}` | {met} | {sum(gaps) / len(gaps):.1f} | {max(gaps):.1f} | {1000 * slowest:.1f} |")


if __name__ == "__main__":
    main()

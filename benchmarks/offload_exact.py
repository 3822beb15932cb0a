# SPDX-License-Identifier: Apache-2.0
"""The search for copies and recomputation against the quickest schedule, on small random training steps.

    python benchmarks/offload_exact.py [--problems N] [--work STATES]

Each is a forward pass of three or four ops that read the one before and one of those before that, and a backward pass; sizes of 128 to
512 bytes, ops of 0.1 to 2 ns, and a link that moves a value in the time of some ops. Budgets are the lowest peak that the search reaches,
and one in the middle of its plans. The gap is of the search's best plan within the budget, in percent of the least makespan. Ops run
first in their order in both; the bound of the linear program is compared as well. `unproven`: budgets that took more states than `--work`.
"""

from __future__ import annotations

import argparse
import random
import statistics

from memc.solvers.exact.offload import solve_offload
from memc.solvers.exact.offload_bound import added_at_least
from memc.solvers.offload import Lane, Lanes, OffloadProblem, offload_ladder
from memc.solvers.recompute import RecomputeProblem


def small_step(seed: int) -> OffloadProblem:
    chosen = random.Random(seed)
    layers = chosen.randrange(3, 5)
    reads: list[list[int]] = [[]]
    for op in range(1, layers):
        reads.append(sorted({op - 1, chosen.randrange(op)}))
    for op in reversed(range(layers)):
        reads.append(sorted({len(reads) - 1, op}))
    ops = len(reads)
    none: list[list[int]] = [[] for _ in range(ops)]
    problem = RecomputeProblem(
        sizes=[64 * chosen.randrange(2, 9) if op < layers else 64 for op in range(ops)],
        costs=[chosen.randrange(100, 2000) for _ in range(ops)],
        once=[chosen.random() < 0.2 for _ in range(ops)],
        scratch=[0] * ops,
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=none,
        parts=none,
        until=none,
        in_order=True,
    )
    lane = Lane(0, 1 << chosen.choice((20, 21, 22)))
    return OffloadProblem(problem, [True] * ops, Lanes(lane, lane))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=190)
    parser.add_argument("--work", type=int, default=12_000)
    arguments = parser.parse_args()
    gaps: list[float] = []
    bounds: list[float] = []
    unproven = 0
    for seed in range(arguments.problems):
        problem = small_step(seed)
        plans = offload_ladder(problem, 0)
        peaks = sorted({plan.peak for plan in plans if plan.added})
        for limit in dict.fromkeys((peaks[len(peaks) // 2], peaks[0]) if peaks else ()):
            best = solve_offload(problem, limit, arguments.work)
            if best.plan is None:
                assert not best.proven
                unproven += 1
                continue
            least, found = best.plan.makespan, min(plan.makespan for plan in plans if plan.peak <= limit)
            bound = added_at_least(problem, limit)
            assert found >= least and best.plan.peak <= limit
            assert bound is not None and bound <= best.plan.added
            bounds.append(100 * (best.plan.added - bound) / least)
            gaps.append(100 * (found - least) / least)
    heads = "problems | budgets solved | gap % mean | median | worst | without a gap | bound's gap % mean | unproven"
    print(f"| {heads} |\n|" + " --: |" * 8)
    cells = [arguments.problems, len(gaps), f"{statistics.mean(gaps):.2f}", f"{statistics.median(gaps):.2f}"]
    cells += [f"{max(gaps):.1f}", sum(gap == 0 for gap in gaps), f"{statistics.mean(bounds):.2f}", unproven]
    print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()

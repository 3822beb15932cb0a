# SPDX-License-Identifier: Apache-2.0
"""Copies to the host beside recomputation, under budgets: training steps of the shared models, at shares of the arena that they
take without either.

    python benchmarks/offload.py --models FOLDER [--cache FOLDER] [--batch 32] [--link h200-alone] [--only NAME ...] [--sweep N]

Each cell is the time added in percent of one run of every op, in the cost model (an H100's roofline, and the named link), by
recomputation alone, by copies alone (their lower bound for the order of the plan) and by both, with the lower bound of every plan in that
order (a linear program). Addresses are included. `search` is
the processor time of the search down to the lowest budget, of all its threads, after `reorder`: by recomputation alone, and by both.
`addresses` is that of trying plans of both until one keeps a budget, addresses included, for the budget for which it takes longest.
`--sweep N` instead tries N budgets from the whole arena downwards and checks that neither the peak rises nor the time falls.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import training_steps
from rematerialize import ALIGNMENT, COSTS, prepared

from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.ir.snapshot import Snapshot
from memc.ir.verify.structure import verify
from memc.passes.offload.link_rates import LINKS
from memc.passes.order.reorder import Search, reorder
from memc.passes.pipelines import SLACK, WORK
from memc.passes.recompute.choices import Choices, Copies, Recomputation, Starts
from memc.passes.recompute.planned_arena import planned_arena
from memc.passes.recompute.rematerialize import SPARE_WITH_COPIES

SHARES = (0.5, 0.27)


@dataclass(frozen=True)
class Plans:
    """The plans of a training step."""

    module: Module
    before: Snapshot
    copies: Copies
    arena: int
    """Bytes without copies and recomputation."""
    choices: Choices
    alone_seconds: float
    seconds: float

    @staticmethod
    def of(name: str, arguments: argparse.Namespace) -> Plans:
        module = prepared(name, arguments.batch, arguments)
        function, given = module.main, list(module.main.ops)
        reorder(function, Search(slack=SLACK, work=WORK), ALIGNMENT)
        arena = planned_arena(function, ALIGNMENT)
        link = LINKS[arguments.link]
        copies = Copies(link.name, link.lanes())
        starts = Starts.of(function, [function.ops, given], COSTS, ALIGNMENT)
        lowest = int(SPARE_WITH_COPIES * SHARES[-1] * arena)
        times = [time.process_time()]
        starts.choices(lowest)
        times.append(time.process_time())
        choices = starts.choices(lowest, copies)
        times.append(time.process_time())
        taken = (times[1] - times[0], times[2] - times[1])
        return Plans(module, Snapshot.of(module, function), copies, arena, choices, *taken)

    def within(self, budget: int, host_budget: int | None = None) -> Recomputation | None:
        """The quickest whose arena keeps the budget; None if none does."""
        for choice in self.choices.fitting(budget, host_budget):
            found = self.choices.follow(choice, self.arena, budget)
            verify(self.module)
            self.before.restore()
            if found.arena <= budget:
                copied = self.choices.copied(choice, budget, self.copies)
                return Recomputation(found.without, found.arena, found.added, found.repeats, copied)
        return None


def row(name: str, arguments: argparse.Namespace) -> tuple[str, list[tuple[float | None, float | None]], float]:
    """A table row; by share, percent added by recomputation alone and by both; and the seconds that both take."""
    plans = Plans.of(name, arguments)
    cells, added, addresses = [], [], 0.0
    for share in SHARES:
        budget = int(share * plans.arena)
        alone, start = plans.within(budget, 0), time.process_time()
        both = plans.within(budget)
        addresses = max(addresses, time.process_time() - start)
        if both is None or both.copied is None:
            cells.append("not reached | | | |")
        else:
            only = "not reached" if alone is None else f"{100 * alone.added:.2f}"
            least, moved = 100 * both.copied.alone_at_least, format_size(both.copied.bytes_out)
            bound = both.copied.at_least
            if bound is None or bound > both.added:
                raise SystemExit(f"{name}: a plan adds {both.added}, below the bound {bound}")
            cells.append(f"{only} | {least:.1f} | {100 * bound:.2f} | **{100 * both.added:.2f}** | {moved}")
        added.append(tuple(None if found is None else 100 * found.added for found in (alone, both)))
    seconds = f"{plans.alone_seconds:.1f} | {plans.seconds:.1f} | {addresses:.1f}"
    text = f"| {name} | {format_size(plans.arena)} | {' | '.join(cells)} | {seconds} |"
    return text, added, plans.seconds + addresses


def sweep(name: str, arguments: argparse.Namespace) -> str:
    """Percent added at evenly spaced budgets."""
    plans = Plans.of(name, arguments)
    found: list[Recomputation] = []
    for step in range(arguments.sweep):
        budget = int(plans.arena * (1 - (1 - SHARES[-1]) * step / max(1, arguments.sweep - 1)))
        plan = plans.within(budget)
        if plan is None:
            break
        if found and (plan.arena > found[-1].arena or plan.added < found[-1].added):
            raise SystemExit(f"{name}: from {found[-1]} to {plan} at a budget of {budget} bytes")
        found.append(plan)
    return f"| {name} | {len(found)} | {' '.join(f'{100 * plan.added:.2f}' for plan in found)} |"


def summary(rows: list[list[tuple[float | None, float | None]]]) -> None:
    """Means by share."""
    for index, share in enumerate(SHARES):
        alone = [cells[index][0] for cells in rows]
        both = [cells[index][1] for cells in rows]
        pairs = [(a, b) for a, b in zip(alone, both) if a is not None and b is not None]
        shown = [
            f"{what}: met by {len(met)} of {len(rows)}, {statistics.mean(met):.2f} % added in the mean"
            for what, values in (("recomputation alone", alone), ("both", both))
            if (met := [value for value in values if value is not None])
        ]
        half = sum(b <= a / 2 for a, b in pairs)
        print(
            f"\n{100 * share:.0f} %: {'; '.join(shown)}; at most half of recomputation alone on {half} of {len(pairs)}."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--link", choices=sorted(LINKS), default="h200-alone")
    parser.add_argument("--only", nargs="*", default=training_steps.NAMES)
    parser.add_argument("--sweep", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.sweep:
        print("| model | budgets met | added % from the whole arena downwards |\n| --- | --: | --- |")
        for name in arguments.only:
            print(sweep(name, arguments), flush=True)
        return
    heads = " | ".join(
        f"{100 * s:.0f} %: recomputation | copies at least | any plan at least | both | copied out" for s in SHARES
    )
    print(f"| model | arena | {heads} | search s: recomputation | both | addresses |")
    print("| --- | --: |" + " --: |" * (5 * len(SHARES) + 3))
    rows, seconds = [], []
    for name in arguments.only:
        text, added, duration = row(name, arguments)
        print(text, flush=True)
        rows.append(added)
        seconds.append(duration)
    summary(rows)
    print(f"\nSearch and addresses: {statistics.median(seconds):.1f} s in the median, {max(seconds):.1f} s at most.")


if __name__ == "__main__":
    main()

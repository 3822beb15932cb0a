#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an allocate or a free costs the replay engine, on the recorded training steps.

    python benchmarks/replay_speed.py [--repeats 300]

Nanoseconds for each, in the fastest of so many steps: as planned, where nothing deviates; checked, in steps in which the first request is
dropped, so that each later one is compared with all bytes in use; and recorded, as when a plan is about to be made anew.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import random
import statistics
import sys
from pathlib import Path

import numpy as np
from replay_deviations import Player, add_plan, blocks_of

from memc.replay import WatchedStep, make_plan
from memc.replay.engine import EventKind, Rehearsal

TRACES = Path(__file__).resolve().parents[1] / "tests" / "data" / "traces" / "pytorch_h100.csv.gz"


def traces() -> dict[str, WatchedStep]:
    """The recorded steps by name."""
    rows: dict[str, list[tuple[int, int, int]]] = {}
    with gzip.open(TRACES, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["trace"], []).append((int(row["lower"]), int(row["upper"]), int(row["size"])))
    return {name: _step(sorted(blocks)) for name, blocks in sorted(rows.items())}


def _step(blocks: list[tuple[int, int, int]]) -> WatchedStep:
    begins = [lower for lower, _, _ in blocks]
    freed = np.searchsorted(begins, [upper for _, upper, _ in blocks])
    return WatchedStep.of([(size, 0, 0, int(end)) for (_, _, size), end in zip(blocks, freed)])


def costs(step: WatchedStep, repeats: int) -> tuple[float, float, float]:
    """Nanoseconds as planned, checked, and recorded."""
    rehearsal = Rehearsal()
    add_plan(rehearsal, make_plan(step, solver="first-fit"))
    blocks = blocks_of(step)
    player = Player(random.Random(0))
    kinds = (EventKind.ALLOCATE, EventKind.FREE)
    events = [event for event in player.step(blocks, len(step)) if event[0] in kinds]
    events += [(EventKind.FREE, number, 0, 0, 0) for _, number, _ in player.alive]
    planned = rehearsal.time(events, repeats=repeats)
    first = events[0][1]
    dropped = [event for event in events if event[1] != first]
    checked = rehearsal.time(dropped, repeats=repeats)
    rehearsal.engine.record_steps(True)
    return planned, checked, rehearsal.time(events, repeats=repeats)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    given = parser.parse_args()
    print("| step | requests | as planned, ns | checked, ns | recorded, ns |")
    print("| --- | --: | --: | --: | --: |")
    found = []
    for name, step in traces().items():
        found.append(costs(step, given.repeats))
        print(f"| {name} | {len(step):,} | {' | '.join(f'{each:.1f}' for each in found[-1])} |", flush=True)
    medians = (statistics.median(column) for column in zip(*found))
    most = (max(column) for column in zip(*found))
    print(f"| median | | {' | '.join(f'{each:.1f}' for each in medians)} |")
    print(f"| most | | {' | '.join(f'{each:.1f}' for each in most)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

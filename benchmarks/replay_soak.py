#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps that deviate from their plans at random, on a device that finds every overlap of blocks and every race between streams.

    python benchmarks/replay_soak.py [--deviations 1000000] [--seed 1]

Prints a table: a row for each number of streams in the plans. Exit code 1 if bytes were given out that were in use, if a planned request
of the first step without deviations was not served, or if memory grew.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from replay_deviations import Soak, soak

PLANS = (1, 2, 3)
"""Streams of the plans of each row."""

MOST_GROWTH = 8.0
"""MiB, once a tenth of the deviations is done."""


def resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def run(seed: int, deviations: int, streams: int) -> tuple[Soak, float, float, float]:
    """What was found, resident MiB after a tenth and at the end, and seconds."""
    begin = time.perf_counter()
    early, found = 0.0, Soak()
    for found in soak(seed, deviations, streams=streams):
        if not early and found.deviations.total() >= deviations / 10:
            early = resident()
        if found.wrong:
            break
    return found, early, resident(), time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deviations", type=int, default=1_000_000, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = False
    print(
        "| streams | deviations | steps | requests | served | checked | waits | overlaps, races | hits late | MiB after 10 %, at the end | s |"
    )
    print("| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    for streams in PLANS:
        found, early, late, seconds = run(given.seed, given.deviations // len(PLANS), streams)
        failed |= bool(found.wrong or found.late_returns or late - early > MOST_GROWTH)
        print(
            f"| {streams} | {found.deviations.total():,} | {found.steps:,} | {found.requests:,} "
            f"| {100 * found.hits / found.requests:.1f} % | {100 * found.checked / found.requests:.1f} % | {found.waits:,} "
            f"| {found.wrong} | {found.late_returns} | {early:.1f}, {late:.1f} | {seconds:.0f} |",
            flush=True,
        )
        if found.wrong:
            print(f"seed {given.seed}, {streams} streams: {found.first_wrong}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

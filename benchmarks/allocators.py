# SPDX-License-Identifier: Apache-2.0
"""Simulated allocators on recorded events: whether PyTorch's gives what was recorded, and how fast each is.

    python benchmarks/allocators.py [FILE ...] [--seconds 1]

A FILE is a recording as `memc estimate` reads it, by default those of the tests. A row: requests, whether every address and every
peak is the recorded one, what the other allocators reserve for the same requests, and millions of events a second of the
processor's time, for the recording repeated (with everything freed in between).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from memc.estimation.alloc_conf import parse_alloc_conf
from memc.estimation.allocators import ALLOCATORS, Allocator, Caching
from memc.estimation.event_files import read_json
from memc.estimation.events import Events, Kind
from memc.estimation.gpus import GPUS
from memc.estimation.planned import planned_arena
from memc.estimation.recording import Recording
from memc.estimation.simulation import simulate

EVENTS = Path(__file__).parents[1] / "tests/data/events"
TOTAL = GPUS["h200"].total
EVENTS_AT_LEAST = 500_000


def repeated(events: Events) -> Events:
    """The events many times over, with all that is live freed in between."""
    made = set(events.blocks[events.kinds == Kind.ALLOCATE].tolist())
    freed = set(events.blocks[events.kinds == Kind.FREE].tolist())
    left = np.array(sorted(made - freed), np.int64)
    times = EVENTS_AT_LEAST // (len(events) + len(left)) + 1
    zeros = np.zeros(len(left), np.int64)
    kinds = np.tile(np.concatenate([events.kinds, zeros + Kind.FREE]), times)
    blocks = np.tile(np.concatenate([events.blocks, left]), times)
    nbytes, streams, pools = (
        np.tile(np.concatenate([column, zeros]), times) for column in (events.nbytes, events.streams, events.pools)
    )
    return Events(kinds, blocks, nbytes, streams, pools, np.full(len(kinds), -1, np.int64))


def speed(events: Events, allocator: Allocator, seconds: float) -> float:
    """Millions of events a second, the best of several runs."""
    best, begin = 0.0, time.perf_counter()
    while time.perf_counter() - begin < seconds or best == 0:
        start = time.process_time()
        simulate(events, allocator, device_total=TOTAL)
        best = max(best, len(events) / max(time.process_time() - start, 1e-9) / 1e6)
    return best


def exact(recording: Recording, allocator: Caching) -> str:
    """Whether the replay is what was recorded."""
    addresses = recording.segment_addresses(TOTAL)
    found = simulate(recording.events, allocator, device_total=TOTAL, segment_addresses=addresses, addresses=True)
    requests = recording.events.kinds == Kind.ALLOCATE
    same = found.addresses[requests].tolist() == list(recording.addresses)
    peaks = all(getattr(found, name).peak == nbytes for name, nbytes in recording.peaks.items())
    return "yes" if same and peaks else "no"


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    files = options.files or sorted(EVENTS.glob("*.json.gz"))
    recordings = {path.name.split(".")[0]: read_json(path) for path in files}
    others = {name: ALLOCATORS[name] for name in ("tensorflow", "mxnet", "mxnet-round", "cupy")}
    named = {"pytorch": Caching(), "expandable": Caching(expandable_segments=True), **others}
    print(f"| job | requests | as recorded | MB reserved: {' | '.join(named)} | planned |")
    print(f"| --- | --: | --: |{' --: |' * (len(named) + 1)}")
    for job, recording in recordings.items():
        same = exact(recording, parse_alloc_conf(recording.alloc_conf))
        taken = [simulate(recording.events, each, device_total=TOTAL).reserved.peak for each in named.values()]
        cells = [f"{nbytes / 1e6:,.0f}" for nbytes in (*taken, planned_arena(recording.events))]
        print(f"| {job} | {len(recording.addresses):,} | {same} | {' | '.join(cells)} |")
    print(f"\n| job | events | M/s: {' | '.join(named)} |\n| --- | --: |{' --: |' * len(named)}")
    for job, recording in recordings.items():
        events = repeated(recording.events)
        rates = [f"{speed(events, each, options.seconds):.1f}" for each in named.values()]
        print(f"| {job} | {len(events):,} | {' | '.join(rates)} |", flush=True)


if __name__ == "__main__":
    main()

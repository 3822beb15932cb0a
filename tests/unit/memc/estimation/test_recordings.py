# SPDX-License-Identifier: Apache-2.0
"""Recorded events of real jobs: the simulated allocator gives every address, segment and peak of the real one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from memc.estimation.alloc_conf import parse_alloc_conf
from memc.estimation.event_files import read_json
from memc.estimation.events import Kind
from memc.estimation.simulation import simulate

EVENTS = Path(__file__).parents[3] / "data/events"

H200 = 150_109_880_320
"""Bytes of the device on which the jobs were recorded."""

SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")


@pytest.mark.parametrize("path", sorted(EVENTS.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0])
def test_replay_is_exact(path: Path) -> None:
    recorded = read_json(path)
    found = simulate(
        recorded.events,
        parse_alloc_conf(recorded.alloc_conf),
        device_total=H200,
        segment_addresses=recorded.segment_addresses(H200),
        addresses=True,
        segments=True,
    )
    requests = recorded.events.kinds == Kind.ALLOCATE
    assert found.addresses[requests].tolist() == list(recorded.addresses)
    raw = json.loads(gzip.decompress(path.read_bytes()))
    segments = [tuple(event) for event in raw["events"] if event[0] in SEGMENTS]
    assert [(change.kind, change.address, change.nbytes, change.stream) for change in found.changes] == segments
    assert {name: getattr(found, name).peak for name in raw["peak"]} == raw["peak"]
    assert len(segments) > 40 and len(recorded.addresses) > 1000


@pytest.mark.parametrize("path", sorted(EVENTS.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0])
@pytest.mark.parametrize("descending", [False, True])
def test_peaks_without_known_addresses(path: Path, descending: bool) -> None:
    recorded = read_json(path)
    allocator = parse_alloc_conf(recorded.alloc_conf)
    found = simulate(recorded.events, allocator, device_total=H200, descending=descending)
    assert {name: getattr(found, name).peak for name in recorded.peaks} == dict(recorded.peaks)

# SPDX-License-Identifier: Apache-2.0
"""The replay engine on recorded steps, and on steps that deviate at random: every block is filled with its number and compared when
it is freed, and the device finds every overlap and every race between streams."""

from __future__ import annotations

import csv
import functools
import gzip
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from memc.replay import WatchedStep, make_plan
from memc.replay.engine import EventKind, Rehearsal, StepFindings

ROOT = Path(__file__).parents[4]
TRACES = ROOT / "tests" / "data" / "traces" / "pytorch_h100.csv.gz"
LARGEST_FILLED = 64 << 20
"""Bytes of an arena that is written to."""

if str(ROOT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(ROOT / "benchmarks"))

import replay_deviations  # noqa: E402


@functools.cache
def traces() -> dict[str, WatchedStep]:
    """The recorded steps by name."""
    rows: dict[str, list[tuple[int, int, int]]] = {}
    with gzip.open(TRACES, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["trace"], []).append((int(row["lower"]), int(row["upper"]), int(row["size"])))
    return {name: step_of(blocks) for name, blocks in rows.items()}


def step_of(blocks: list[tuple[int, int, int]]) -> WatchedStep:
    blocks.sort()
    begins = np.array([lower for lower, _, _ in blocks])
    freed = np.searchsorted(begins, [upper for _, upper, _ in blocks])
    return WatchedStep.of([(size, 0, 0, int(end)) for (_, _, size), end in zip(blocks, freed)])


NAMES = [
    f"{name}.b{batch}"
    for name in ("alexnet", "bert_base", "densenet121", "efficientnet_b0", "googlenet")
    for batch in (1, 32)
]
NAMES += [
    f"{name}.b{batch}"
    for name in ("inception_v3", "lstm", "mobilenet_v2", "resnet152", "resnet18")
    for batch in (1, 32)
]
NAMES += [f"{name}.b{batch}" for name in ("resnet50", "transformer", "unet", "vgg16", "vit_b_16") for batch in (1, 32)]


def test_all_recorded_steps_are_named() -> None:
    assert sorted(traces()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_steps_are_served_whole(name: str) -> None:
    step = traces()[name]
    plan = make_plan(step, solver="first-fit")
    rehearsal = Rehearsal(fills=plan.arena_bytes <= LARGEST_FILLED)
    replay_deviations.add_plan(rehearsal, plan)
    player = replay_deviations.Player(random.Random(0))
    blocks = replay_deviations.blocks_of(step)
    for _ in range(3):
        events = player.step(blocks, len(step))
        results = rehearsal.play(events)
        offsets = [result for result, event in zip(results.tolist(), events) if event[0] == EventKind.ALLOCATE]
        assert offsets == plan.offsets.tolist()
        assert StepFindings(results[-2 if events[-1][0] == EventKind.JOIN else -1]) == StepFindings.NOTHING
    statistics = rehearsal.engine.statistics()
    assert (statistics.hits, statistics.clean, statistics.checked) == (3 * len(step), 3, 0)
    assert rehearsal.first_wrong == ""


@pytest.mark.parametrize("name", ["lstm.b1", "resnet18.b1", "transformer.b32"])
def test_recorded_steps_that_deviate(name: str) -> None:
    step = traces()[name]
    plan = make_plan(step, solver="first-fit")
    rng = random.Random(name)
    rehearsal = Rehearsal()
    replay_deviations.add_plan(rehearsal, plan)
    player = replay_deviations.Player(rng)
    for _ in range(6):
        blocks = replay_deviations.blocks_of(step)
        for _ in range(8):
            replay_deviations.deviate(rng, blocks, rng.choice(replay_deviations.DEVIATIONS))
        rehearsal.play(player.step(blocks, len(step)))
    rehearsal.play(player.free_all())
    before = rehearsal.engine.statistics().hits
    rehearsal.play(player.step(replay_deviations.blocks_of(step), len(step)))
    assert rehearsal.engine.statistics().hits == before + len(step)
    assert rehearsal.first_wrong == ""


@pytest.mark.parametrize(("seed", "streams"), [(1, 1), (2, 2), (3, 3)])
def test_deviations_at_random(seed: int, streams: int) -> None:
    for found in replay_deviations.soak(seed, 1500, streams=streams):
        assert found.first_wrong == ""
        assert found.late_returns == 0
    assert set(found.deviations) == set(replay_deviations.DEVIATIONS)
    assert min(found.deviations.values()) > 100
    assert found.hits > 0.8 * found.requests
    assert found.checked > 0.2 * found.requests
    assert found.waits > 100

# SPDX-License-Identifier: Apache-2.0
"""Steps of a job's events, the plan of the hot one, and what is reserved with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memc.estimation import EventList, Events, estimate
from memc.estimation.alloc_conf import parse_alloc_conf
from memc.estimation.event_files import read_json
from memc.estimation.events import Origin
from memc.estimation.gpus import DEFAULT
from memc.estimation.recording import Recording
from memc.estimation.replay import Job
from memc.estimation.step_plans import arena_events, reserved_with
from memc.estimation.steps import hot_step, longest_repeat
from memc.ir.errors import InvalidError, UsageError
from memc.replay import NEVER, make_plan, read_plan

EVENTS = Path(__file__).parents[3] / "data/events"
MIB = 2**20


def job(steps: int, told: bool, odd: int = 0) -> Events:
    """Two weights, then steps: an activation, a gradient that lives into the next step, a temporary on another stream. The first `odd`
    steps ask for a block more."""
    found = EventList()
    found.allocate(3 * MIB, origin=Origin(step=1 if told else -1))
    found.allocate(5 * MIB, origin=Origin(step=1 if told else -1))
    gradient = None
    for step in range(1, steps + 1):
        forward, backward = (Origin(phase=phase, step=step if told else -1) for phase in ("forward", "backward"))
        activation = found.allocate(8 * MIB, origin=forward)
        if gradient is not None:
            found.free(gradient)
        if step <= odd:
            found.free(found.allocate(MIB, origin=forward))
        gradient = found.allocate(4 * MIB, origin=backward)
        found.free(activation)
        found.free(found.allocate(2 * MIB, stream=7, origin=backward))
    return found.events()


@pytest.mark.parametrize("told", [True, False])
def test_the_last_step_that_is_repeated(told: bool) -> None:
    hot = hot_step(job(4, told, odd=1), "job")
    assert hot.watched.nbytes.tolist() == [8 * MIB, 4 * MIB, 2 * MIB]
    assert hot.watched.streams.tolist() == [0, 0, 1]
    assert hot.watched.threads.tolist() == [0, 1, 1]
    # The gradient is freed after the first request of the next step.
    assert hot.watched.freed.tolist() == [2, 4, 3]
    assert len(hot.blocks) == len(hot.repeated) == 3 and (hot.repeated == hot.blocks + 3).all()


@pytest.mark.parametrize(("told", "message"), [(True, "two steps in a row"), (False, "again and again at the end")])
def test_a_job_without_two_equal_steps_is_refused(told: bool, message: str) -> None:
    events = EventList()
    for step in range(1, 4):
        for at in range(10):
            events.free(events.allocate(MIB * (7 * step + at), origin=Origin(step=step if told else -1)))
    with pytest.raises(InvalidError, match=f"job: plan: expected .*{message}"):
        hot_step(events.events(), "job")


def test_a_job_without_requests_is_refused() -> None:
    events = EventList()
    events.free(events.allocate(MIB, pool=1))
    with pytest.raises(InvalidError, match="again and again at the end, got 0 of 0 that do so"):
        hot_step(events.events(), "job")


def test_requests_of_private_pools_are_no_part_of_a_step() -> None:
    events = EventList()
    for _ in range(3):
        events.free(events.allocate(MIB))
        events.free(events.allocate(2 * MIB, pool=1))
        events.free(events.allocate(3 * MIB))
    assert hot_step(events.events(), "job").watched.nbytes.tolist() == [MIB, 3 * MIB]


@pytest.mark.parametrize(
    ("sizes", "period", "repeated"),
    [
        ([], 0, 0),
        ([1], 0, 0),
        ([1, 2, 3], 0, 0),
        ([5, 5], 1, 1),
        ([9, 1, 2, 2, 1, 2, 2], 3, 3),
        ([2, 1, 2, 2, 1, 2, 2], 3, 4),
        ([1, 2, 1, 2, 1, 2], 2, 4),
    ],
)
def test_longest_repeat(sizes: list[int], period: int, repeated: int) -> None:
    assert longest_repeat([(size, 0) for size in sizes]) == (period, repeated)


def test_longest_repeat_by_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        keys = [(int(size), 0) for size in rng.integers(0, 3, rng.integers(1, 14))]
        best = (0, 0)
        for p in range(1, len(keys) // 2 + 1):
            length = 0
            while length + p < len(keys) and keys[-1 - length] == keys[-1 - length - p]:
                length += 1
            if length >= p and length > best[1]:
                best = (p, length)
        assert longest_repeat(keys) == best


@pytest.mark.parametrize("name", ["mobilenet_v2_b64_sgd_x", "resnet50_b32_sgd", "unet_b8_adam_x"])
def test_recorded_jobs_have_an_arena_at_the_bound_and_reserve_less(name: str) -> None:
    recording = read_json(EVENTS / f"{name}.json.gz")
    here = Job(name, recording, DEFAULT, True, None)
    hot = hot_step(recording.events, name)
    plan = make_plan(hot.watched)
    assert plan.arena_bytes == plan.lower_bound > 2 * 10**9 and plan.cyclic.any()
    # Inputs of the next step are asked for while those of this one live.
    assert (~plan.planned).sum() == 3 and (hot.watched.freed[~plan.planned] != NEVER).all()
    found = reserved_with(here, parse_alloc_conf(recording.alloc_conf), hot, plan)
    assert found.planned < 0.98 * found.native and found.compact < 0.98 * found.native <= recording.peaks["reserved"]
    compact = arena_events(recording.events, hot, plan, compact=True)
    assert len(compact) < 20 and int(compact.nbytes.max()) == plan.arena_bytes


def test_all_that_is_live_is_in_the_arena_or_beside_it() -> None:
    events = job(3, told=True)
    hot = hot_step(events, "job")
    plan = make_plan(hot.watched)
    found = arena_events(events, hot, plan)
    assert plan.arena_bytes == 14 * MIB and plan.lower_bound == 12 * MIB
    assert found.nbytes[found.makes].tolist() == [3 * MIB, 5 * MIB, 14 * MIB]
    compact = arena_events(events, hot, plan, compact=True)
    assert compact.nbytes[compact.makes].tolist() == [8 * MIB, 14 * MIB]


def test_estimate_writes_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "step.plan.json"
    found = estimate(EVENTS / "resnet50_b32_sgd.json.gz", gpu="h200", plan=path)
    plan = read_plan(path, torch_version="2.11.0+cu130", device_kind="NVIDIA H200")
    assert found.plan is not None
    assert found.plan.arena_bytes == plan.arena_bytes == plan.lower_bound
    assert found.plan.sequence == plan.sequence_hash and found.plan.requests == len(plan) == 677
    assert found.plan.reserved_bytes < found.plan.native_reserved_bytes == found.reserved_bytes
    assert found.to_dict()["plan"]["placed"] == 674
    assert estimate(EVENTS / "resnet50_b32_sgd.json.gz").to_dict()["plan"] is None


def test_a_plan_needs_known_requests(tmp_path: Path) -> None:
    for source in ("model.onnx", "model.memc"):
        with pytest.raises(UsageError, match="plan: expected it with a script or recorded events"):
            estimate(source, plan=tmp_path / "plan")
    with pytest.raises(InvalidError, match="cannot write"):
        estimate(Recording(job(3, told=True)), plan=tmp_path / "none" / "plan")

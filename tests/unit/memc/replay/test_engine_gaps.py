# SPDX-License-Identifier: Apache-2.0
"""Steps that have an arena and no plan of their own, and plans whose arena is made or grows while blocks of the step before are alive."""

from __future__ import annotations

import random

import numpy as np
import pytest

from memc.replay import ReplayPlan, WatchedStep
from memc.replay.engine import Cause, EventKind, Rehearsal, StepMode

from .applications import KIB, Application, planned, running, watched

STEP = watched((4, 2), (6, 3), (4, 4), (8, 6), (2, 6), (3, 6))
LARGER = watched((5, 2), (7, 3), (5, 4), (9, 6), (3, 6), (11, 6))
OTHER = watched((5, 2), (3, 3), (1, 4), (2, 5), (7, 6), (90, 6))


def add_later(application: Application, plan: ReplayPlan, key: int, arena_from: int) -> None:
    columns = (plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.cyclic)
    application.engine.add_plan(key, *columns, plan.arena_bytes, arena_from)


def test_what_no_plan_has_is_served_from_bytes_that_no_block_uses() -> None:
    application = running(STEP)
    arena = application.rehearsal.arena_bytes
    tried, _ = application.step(OTHER, key=1)
    assert application.begin(1) == StepMode.WATCH
    offsets = application.requests(OTHER)
    application.end()
    for found in (tried, offsets):
        assert all(offset >= 0 for offset in found[:5]) and found[5] == -1, "the last one is larger than the arena"
        assert max(found[:5]) < arena
    assert application.rehearsal.arena_bytes == arena
    statistics = application.engine.statistics()
    # Of the first step some may have found slots of the plan; none has one in the second.
    assert 5 < statistics.from_gaps <= 10
    # The shortest run that is long enough.
    assert offsets[0] == 0
    records = application.engine.records(1)
    assert records is not None and records.nbytes.tolist() == OTHER.nbytes.tolist()
    assert application.step(STEP)[0] == planned(STEP).offsets.tolist(), "its own plan's steps are as before"
    application.check()


def test_a_block_from_a_gap_that_outlives_its_step_keeps_its_bytes() -> None:
    application = running(STEP)
    application.step(OTHER, key=1)
    application.begin(1)
    kept, offset = application.ask(5 * KIB)
    application.end()
    assert offset == 0
    for _ in range(3):
        offsets, _ = application.step(STEP)
        plan = planned(STEP)
        over = [place < 5 * KIB for place in plan.offsets.tolist()]
        assert [found == -1 for found in offsets] == over
    application.free(kept)
    assert application.step(STEP)[0] == plan.offsets.tolist()
    assert application.step(STEP)[0] == plan.offsets.tolist()
    application.check()


def test_gaps_wait_for_the_streams_that_used_their_bytes() -> None:
    application = running(STEP)
    application.step(OTHER, key=1)
    application.begin()
    blocks = [application.ask(size * KIB)[0] for size in (4, 6)]
    for block in blocks:
        application.use(block, 7)
    application.free(*blocks)
    application.end()
    waits = application.engine.statistics().waits
    assert application.begin(1) == StepMode.WATCH
    block, offset = application.ask(9 * KIB, stream=3)
    assert offset == 0
    application.use(block, 3)
    application.end()
    assert application.engine.statistics().waits >= waits + 2
    application.free(block)
    application.check()


def test_without_events_gaps_are_not_used() -> None:
    application = running(STEP)
    application.step(OTHER, key=1)
    application.begin(1)
    application.rehearsal.fail_events(True)
    assert application.ask(4 * KIB, stream=5)[1] == -1
    application.rehearsal.fail_events(False)
    assert application.ask(4 * KIB, stream=5)[1] == 0
    application.end()
    application.check()


def test_an_arena_that_goes_in_the_midst_of_a_watched_step() -> None:
    application = running(STEP)
    application.step(OTHER, key=1)
    application.begin(1)
    block, offset = application.ask(4 * KIB)
    assert offset == 0
    assert application.engine.release_arena() == 0
    assert application.ask(4 * KIB)[1] == -1
    application.free(block)
    application.end()
    application.begin(1)
    application.end()
    assert application.rehearsal.arena_bytes == 0
    application.check()


def test_an_arena_is_made_in_the_place_of_what_the_step_before_has_left() -> None:
    application = running(STEP)
    application.begin()
    left, _ = application.ask(4 * KIB)
    application.end()
    add_later(application, planned(LARGER), 1, arena_from=2)
    assert application.begin(1) == StepMode.REPLAY
    first, offset = application.ask(5 * KIB)
    assert offset == -1 and application.rehearsal.arena_bytes == planned(STEP).arena_bytes
    application.free(left)
    second, offset = application.ask(7 * KIB)
    assert offset == -1
    application.free(first)
    places = planned(LARGER).offsets.tolist()
    third, offset = application.ask(5 * KIB)
    assert offset == places[2] and application.rehearsal.arena_bytes == planned(LARGER).arena_bytes
    application.free(second, third)
    application.requests(LARGER, 3)
    application.end()
    assert sum(application.engine.statistics().counts.values()) == 0
    for _ in range(2):
        assert application.step(LARGER, key=1)[0] == places
    assert application.engine.statistics().clean >= 2
    application.check()


def test_an_arena_is_made_at_once_if_nothing_is_left() -> None:
    application = running(STEP)
    add_later(application, planned(LARGER), 1, arena_from=3)
    assert application.step(LARGER, key=1)[0] == planned(LARGER).offsets.tolist()
    assert application.rehearsal.arena_bytes == planned(LARGER).arena_bytes
    application.check()


def test_a_block_that_stays_has_the_larger_arena_beside_its_own() -> None:
    application = running(STEP)
    application.begin()
    kept, _ = application.ask(4 * KIB)
    application.end()
    add_later(application, planned(LARGER), 1, arena_from=0)
    assert application.step(LARGER, key=1)[0] == planned(LARGER).offsets.tolist()
    both = planned(STEP).arena_bytes + planned(LARGER).arena_bytes
    assert application.rehearsal.arena_bytes == both
    application.free(kept)
    application.step(LARGER, key=1)
    assert application.rehearsal.arena_bytes == planned(LARGER).arena_bytes
    application.check()


def test_a_step_that_waits_for_its_arena_in_vain_is_native() -> None:
    application = Application()
    application.begin()
    left, _ = application.ask(4 * KIB)
    application.end()
    application.rehearsal.set_capacity(KIB)
    add_later(application, planned(STEP), 0, arena_from=1)
    offsets, _ = application.step(STEP)
    assert offsets == [-1] * 6
    assert application.engine.statistics().counts[Cause.NO_ARENA] == 1
    application.free(left)
    application.rehearsal.set_capacity(1 << 30)
    for _ in range(17):  # It is asked for again after a while.
        offsets, _ = application.step(STEP)
    assert offsets == planned(STEP).offsets.tolist()
    application.check()


def test_a_step_that_is_another_one_than_planned_has_its_blocks_in_the_arena() -> None:
    step = watched(*[(40 + i % 7, i + 3) for i in range(97)], (40, 98), (40, 99), (40, 100))
    other = watched(*[(13 + i % 5, i + 2) for i in range(98)], (20, 99), (20, 100))
    application = running(step)
    offsets, _ = application.step(other)
    beside = [index for index, offset in enumerate(offsets) if offset == -1]
    assert len(beside) == 16, "few are native"
    assert min(offsets[beside[-1] + 1 :]) >= 0
    assert application.engine.statistics().from_gaps > 70
    assert application.step(step)[0] == planned(step).offsets.tolist()
    application.check()


@pytest.mark.parametrize("arena_from", [-2, 7])
def test_a_wrong_number_of_requests_before_the_arena_is_refused(arena_from: int) -> None:
    with pytest.raises(ValueError, match=f"requests before the arena: expected -1 to the rows, got {arena_from}"):
        add_later(Application(), planned(STEP), 0, arena_from)


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_keys_at_random(seed: int, streams: int) -> None:
    """Steps of keys with and without plans, whose blocks live into later steps: no byte in use is given out, and no stream races."""
    rng = random.Random(f"{seed} {streams}")
    application = Application()
    steps = [random_step(rng, streams) for _ in range(5)]
    left: list[int] = []
    for turn in range(150):
        key = rng.randrange(5)
        step = steps[key] if rng.random() < 0.8 else random_step(rng, streams)
        application.begin(key)
        for at in range(len(step)):
            if left and rng.random() < 0.5:
                application.free(left.pop(rng.randrange(len(left))))
            block, _ = application.ask(int(step.nbytes[at]), int(step.streams[at]), int(rng.random() < 0.1))
            left.append(block)
            if rng.random() < 0.1:
                application.use(block, rng.randrange(streams))
        if rng.random() < 0.7:
            rng.shuffle(left)
            application.free(*left[3:])
            del left[3:]
        application.end(completed=rng.random() < 0.9)
        if rng.random() < 0.15:
            add_later(application, planned(steps[key]), key, rng.choice((-1, 0, 1, 3)))
        if rng.random() < 0.02:
            application.engine.release_arena()
        if rng.random() < 0.05 and turn > 20:
            drop(application, key)
    application.free(*left)
    application.check()
    assert application.engine.statistics().from_gaps > 20
    assert application.engine.statistics().hits > 100


def random_step(rng: random.Random, streams: int) -> WatchedStep:
    count = rng.randint(4, 14)
    rows = [(rng.randint(1, 9), rng.randint(at + 1, count)) for at in range(count)]
    return watched(*rows, streams=[0] + [rng.randrange(streams) for _ in range(count - 1)])


def drop(application: Application, key: int) -> None:
    try:
        application.engine.drop_plan(key)
    except ValueError:
        pass


def one_block(rehearsal: Rehearsal, key: int, nbytes: int) -> None:
    """A plan of one block, which is freed within its step."""
    zero = np.array([0])
    rehearsal.engine.add_plan(key, np.array([nbytes]), zero, zero, zero, np.array([False]), nbytes)


def step_of(key: int, nbytes: int, *, freed: bool) -> list[tuple[int, int, int, int, int]]:
    free = [(EventKind.FREE, key, 0, 0, 0)] if freed else []
    return [
        (EventKind.BEGIN_STEP, key, 0, 0, 0),
        (EventKind.ALLOCATE, key, nbytes, 0, 0),
        *free,
        (EventKind.END_STEP, 1, 0, 0, 0),
    ]


def test_an_arena_stays_while_a_block_is_in_it_however_often_later_ones_grow() -> None:
    rehearsal = Rehearsal(fills=True)
    for key, nbytes in enumerate((1024, 4096, 8192, 16384), 1):
        one_block(rehearsal, key, nbytes)
        rehearsal.play(step_of(key, nbytes, freed=key > 1))
    assert rehearsal.wrong == 0, rehearsal.first_wrong
    assert [nbytes for _, nbytes, _ in rehearsal.engine.live_blocks()] == [1024]
    assert rehearsal.arena_bytes == 16384 + 1024
    rehearsal.play([(EventKind.FREE, 1, 0, 0, 0), *step_of(4, 16384, freed=True)])
    assert rehearsal.wrong == 0 and rehearsal.arena_bytes == 16384


def test_an_arena_stays_while_a_block_is_in_it_when_all_plans_go() -> None:
    rehearsal = Rehearsal(fills=True)
    for key, nbytes in enumerate((1024, 4096), 1):
        one_block(rehearsal, key, nbytes)
        rehearsal.play(step_of(key, nbytes, freed=key > 1))
    rehearsal.engine.drop_plan(1)
    rehearsal.engine.drop_plan(2)
    rehearsal.play([(EventKind.BEGIN_STEP, 9, 0, 0, 0), (EventKind.END_STEP, 1, 0, 0, 0)])
    assert rehearsal.wrong == 0, rehearsal.first_wrong
    assert len(rehearsal.engine.live_blocks()) == 1 and rehearsal.arena_bytes == 1024


def test_blocks_in_gaps_count_while_their_step_runs() -> None:
    rehearsal = Rehearsal(fills=True)
    zero = np.array([0])
    rehearsal.engine.add_plan(1, np.array([2048]), zero, zero, zero, np.array([False]), 16384)
    rehearsal.play(step_of(1, 2048, freed=True))
    rehearsal.play(
        [(EventKind.BEGIN_STEP, 5, 0, 0, 0), (EventKind.ALLOCATE, 7, 1000, 0, 0), (EventKind.ALLOCATE, 8, 3000, 0, 0)]
    )
    assert sorted(nbytes for _, nbytes, _ in rehearsal.engine.live_blocks()) == [1000, 3000]
    assert rehearsal.engine.statistics().live_bytes == 4000

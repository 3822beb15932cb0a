# SPDX-License-Identifier: Apache-2.0
"""What becomes of plans and arenas as steps are watched, change, and have keys."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from memc.replay import WatchedStep
from memc.replay.engine import Cause, Rehearsal, StepFindings, StepMode

from .applications import KIB, Application, planned, running, watched

STEP = watched((4, 2), (6, 3), (4, 4), (8, 6), (2, 6), (3, 6))
LARGER = watched((5, 2), (7, 3), (5, 4), (9, 6), (3, 6), (11, 6))


def lengths(length: int) -> WatchedStep:
    """A loop of `length` turns over a sequence of that length."""
    rows = []
    for i in range(length):
        rows += [(length, 3 * i + 2), (2 * length, 3 * i + 3), (4, 3 * i + 3)]
    return watched(*rows)


def test_watched_twice_planned_then_replayed() -> None:
    application = Application()
    assert application.begin() == StepMode.WATCH
    assert application.requests(STEP) == [-1] * 6
    assert application.end() == StepFindings.NOTHING
    offsets, found = application.step(STEP)
    assert found == StepFindings.HOT | StepFindings.WANTS_PLAN
    records = application.engine.records(1)
    assert records is not None
    seen = WatchedStep(records.nbytes, records.streams, records.threads, records.freed_before_request())
    for name in ("nbytes", "streams", "threads", "freed"):
        assert getattr(seen, name).tolist() == getattr(STEP, name).tolist()
    assert records.slots.tolist() == [-1] * 6
    application.add_plan(planned(seen))
    assert application.step(STEP)[0] == planned(STEP).offsets.tolist()


def test_blocks_that_outlive_the_watched_step_are_seen_in_the_next() -> None:
    application = Application()
    application.begin()
    cyclic, _ = application.ask(4 * KIB)
    kept, _ = application.ask(2 * KIB)
    application.end()
    application.begin()
    second, _ = application.ask(4 * KIB)
    application.free(cyclic)
    application.ask(2 * KIB)
    application.end()
    before, last = application.engine.records(2), application.engine.records(1)
    assert before is not None and last is not None
    assert before.free_steps.tolist() == [1, -1]
    assert before.freed_before_request(last).tolist() == [3, -1]
    assert application.engine.records(3) is None


def test_what_else_a_record_says() -> None:
    application = Application()
    application.begin()
    block, _ = application.ask(4 * KIB, stream=3)
    application.ask(4 * KIB, stream=9, thread=1)
    application.use(block, 9)
    application.use(block, 55)
    application.end()
    records = application.engine.records()
    assert records is not None
    assert records.streams.tolist() == [0, 1]
    assert records.threads.tolist() == [0, 1]
    assert records.also_used.tolist() == [1 << 1 | 1 << 62, 0]


def test_a_step_that_was_not_completed_is_not_recorded() -> None:
    application = Application()
    application.step(STEP)
    application.begin()
    application.requests(STEP, 0, 2)
    application.end(completed=False)
    records = application.engine.records()
    assert records is not None and len(records.nbytes) == 6
    assert application.step(STEP)[1] == StepFindings.HOT | StepFindings.WANTS_PLAN


def test_steps_that_keep_deviating_want_a_plan_and_then_are_given_up() -> None:
    application = running(STEP)
    findings = [application.step(LARGER)[1] for _ in range(3)]
    assert [StepFindings.WANTS_PLAN in found for found in findings] == [False, False, True]
    records = application.engine.records()
    assert records is not None and records.nbytes.tolist() == LARGER.nbytes.tolist(), "recorded while they deviated"
    application.add_plan(planned(LARGER))
    assert -1 not in application.step(LARGER)[0]
    findings = [application.step(lengths(7))[1] for _ in range(3)]
    assert [StepFindings.GAVE_UP in found for found in findings] == [False, False, True]
    assert StepFindings.WANTS_PLAN not in findings[-1]
    warning = application.engine.warning()
    assert "key 0" in warning and "\n" not in warning
    assert "request 0 of step 6: expected 5120 bytes, got 7168 bytes" in warning
    assert application.begin() == StepMode.PASS
    assert application.requests(LARGER) == [-1] * 6
    application.end()
    assert application.rehearsal.arena_bytes == 0, "given back with the last plan"


def test_a_deviation_of_five_percent_is_none() -> None:
    step = watched(*[(i + 1, i + 1) for i in range(20)])
    application = running(step)
    for _ in range(9):
        application.begin()
        application.requests(step)
        block, _ = application.ask(1)
        application.free(block)
        assert application.end() == StepFindings.NOTHING


def test_a_plan_that_dominates_serves_a_key_without_one() -> None:
    application = running(lengths(30))
    for length in range(10, 30, 5):
        offsets, found = application.step(lengths(length), key=length)
        assert -1 not in offsets
        assert StepFindings.WANTS_PLAN not in found
    assert application.engine.statistics().plans == 1
    application.check()


def test_a_key_that_no_plan_dominates_wants_one_after_one_step() -> None:
    application = running(lengths(10))
    _, found = application.step(lengths(30), key=30)
    assert StepFindings.WANTS_PLAN in found
    records = application.engine.records()
    assert records is not None and records.nbytes.tolist() == lengths(30).nbytes.tolist()
    application.add_plan(planned(lengths(30)), key=30)
    assert -1 not in application.step(lengths(30), key=30)[0]
    assert -1 not in application.step(lengths(10))[0]
    assert application.rehearsal.arena_bytes == planned(lengths(30)).arena_bytes, "one arena for all"
    application.check()


def test_plans_are_32_at_most() -> None:
    application = Application()
    for key in range(100):
        application.add_plan(planned(watched((key + 1, 1))), key)
        assert application.step(watched((key + 1, 1)), key)[0] == [0]
    statistics = application.engine.statistics()
    assert (statistics.plans, statistics.evicted) == (32, 68)
    assert application.begin(67) == StepMode.REPLAY, "by a stand-in: its own is gone"
    assert application.ask(68 * KIB)[1] == 0
    application.check()


def test_seq2seq_at_random_lengths() -> None:
    application = Application()
    rng = np.random.default_rng(5)
    hits = []
    for _ in range(400):
        length = int(rng.integers(10, 51))
        offsets, found = application.step(lengths(length), key=length)
        hits.append(-1 not in offsets)
        if StepFindings.WANTS_PLAN in found:
            application.add_plan(planned(lengths(length)), key=length)
        if not application.engine.statistics().plans:
            application.add_plan(planned(lengths(length)), key=length)
    assert application.engine.statistics().plans <= 32
    assert all(hits[50:])
    assert application.rehearsal.arena_bytes == planned(lengths(50)).arena_bytes
    application.check()


def test_a_larger_arena_takes_the_place_of_one_in_use() -> None:
    application = running(STEP)
    application.begin()
    kept, _ = application.ask(4 * KIB)
    application.end()
    small, large = planned(STEP).arena_bytes, planned(LARGER).arena_bytes
    application.add_plan(planned(LARGER), key=1)
    assert -1 not in application.step(LARGER, key=1)[0]
    statistics = application.engine.statistics()
    assert (statistics.arena_bytes, statistics.retired_bytes) == (large, small)
    assert application.step(STEP)[0][0] == -1, "the slot is taken, though its bytes are elsewhere"
    application.free(kept)
    assert -1 not in application.step(STEP)[0]
    assert application.rehearsal.arena_bytes == large
    application.check()


def test_an_arena_that_does_not_fit() -> None:
    application = running(STEP)
    application.rehearsal.set_capacity(planned(STEP).arena_bytes)
    application.add_plan(planned(LARGER), key=1)
    assert application.begin(1) == StepMode.PASS
    assert application.requests(LARGER) == [-1] * 6
    application.end()
    assert application.engine.statistics().counts[Cause.NO_ARENA] == 1
    assert -1 not in application.step(STEP)[0]
    application.rehearsal.set_capacity(1 << 30)
    for _ in range(16):
        application.step(LARGER, key=1)
    assert -1 not in application.step(LARGER, key=1)[0], "asked for again"
    application.check()


def test_an_arena_asked_back_goes_with_its_last_block() -> None:
    application = running(STEP)
    application.begin()
    kept, _ = application.ask(4 * KIB)
    assert application.engine.release_arena() == 0
    assert application.ask(6 * KIB)[1] == -1
    application.end()
    assert application.begin() == StepMode.PASS
    assert application.rehearsal.arena_bytes == planned(STEP).arena_bytes
    application.end()
    application.free(kept)
    assert application.begin() == StepMode.PASS
    assert application.rehearsal.arena_bytes == 0
    application.end()
    application.add_plan(planned(STEP))
    assert -1 not in application.step(STEP)[0]
    assert application.engine.release_arena() == planned(STEP).arena_bytes
    application.check()


def test_an_engine_lives_as_long_as_someone_has_it() -> None:
    rehearsal = Rehearsal()
    gone = weakref.ref(rehearsal)
    engine = rehearsal.engine
    del rehearsal
    gc.collect()
    assert gone() is None
    assert engine.begin_step() == StepMode.WATCH

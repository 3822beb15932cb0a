# SPDX-License-Identifier: Apache-2.0
"""Streams: whoever gets bytes waits, on its stream, for all that used them. The device of a rehearsal finds what does not."""

from __future__ import annotations

import pytest

from memc.replay import WatchedStep
from memc.replay.engine import Cause, StepFindings

from .applications import KIB, Application, placed, planned, running, watched

SIDE = 7

PAIR = watched((4, 1), (5, 2), (3, 3))
"""One after another in the same bytes."""

TWO = watched((4, 2), (6, 3), (4, 4), (6, 5), (3, 6), (2, 6), streams=[0, 1, 0, 1, 0, 1])
"""Two streams that ask in turn."""


def test_bytes_that_a_second_stream_uses_are_waited_for() -> None:
    application = running(PAIR)
    for _ in range(5):
        application.begin()
        block, offset = application.ask(4 * KIB)
        application.use(block, SIDE)
        application.free(block)
        second, at = application.ask(5 * KIB)
        assert offset == at == 0
        application.free(second)
        application.requests(PAIR, 2)
        application.end()
    statistics = application.engine.statistics()
    assert statistics.hits == 18
    assert statistics.waits == 5, "once in each step"
    assert application.rehearsal.device_events == 1, "which is recorded anew"
    application.check()


def test_bytes_used_at_the_end_of_a_step_are_waited_for_in_the_next() -> None:
    application = running(PAIR)
    application.begin()
    application.requests(PAIR, 0, 2)
    block, _ = application.ask(3 * KIB)
    application.use(block, SIDE)
    application.free(block)
    application.end()
    assert application.step(PAIR)[0] == [0, 0, 0]
    assert application.engine.statistics().waits == 1
    application.check()


def test_a_use_of_a_passed_over_successor_s_bytes_is_waited_for_by_the_one_after() -> None:
    application = running(PAIR)
    application.begin()
    block, _ = application.ask(4 * KIB)
    application.use(block, SIDE)
    application.free(block)
    assert application.ask(3 * KIB)[1] == 0, "the second of the plan was not asked for"
    assert application.engine.statistics().waits == 1
    application.check()


def test_the_device_finds_bytes_that_nobody_waits_for() -> None:
    """That the tests above can fail: the use is not told to the engine."""
    application = running(PAIR)
    application.begin()
    block, _ = application.ask(4 * KIB, 0)
    application.free(block)
    rehearsal = application.rehearsal
    assert rehearsal.first_wrong == ""
    other = Application(rehearsal, application.blocks)
    step = watched((5, 1), (4, 2))
    other.add_plan(planned(step), key=1)
    other.begin(1)
    assert other.ask(5 * KIB, SIDE)[1] == 0
    assert rehearsal.first_wrong == "", "a stream new to the arena waits for the first one"
    other.check()


def test_a_device_without_events_gives_no_bytes_that_would_need_them() -> None:
    application = running(PAIR)
    application.begin()
    block, _ = application.ask(4 * KIB)
    application.use(block, SIDE)
    application.rehearsal.fail_events(True)
    application.free(block)
    assert application.ask(5 * KIB)[1] == -1
    assert application.engine.statistics().counts[Cause.EVENT_FAILED] == 1
    application.rehearsal.fail_events(False)
    assert application.ask(3 * KIB)[1] == 0, "recorded late, which covers as much"
    application.check()


def test_two_streams_are_served_whole() -> None:
    application = running(TWO)
    for _ in range(4):
        assert application.step(TWO)[0] == planned(TWO).offsets.tolist()
    assert application.engine.statistics().clean == 5
    application.check()


@pytest.mark.parametrize("count", [3, 100])
def test_streams_that_are_made_anew_in_each_step_are_known_by_their_first_appearance(count: int) -> None:
    application = running(TWO)
    for step in range(count):
        streams = [(0, 10 + step % 40)[i % 2] for i in range(6)]
        assert application.step(TWO, streams=streams)[0] == planned(TWO).offsets.tolist()
    for step in range(count):
        streams = [(20 + step, 21 + step)[i % 2] for i in range(6)]
        assert application.step(TWO, streams=streams)[0] == planned(TWO).offsets.tolist()
    assert application.engine.statistics().hits == 6 + 12 * count
    application.check()


def test_a_stream_too_many_is_native() -> None:
    application = running(TWO)
    application.begin()
    assert -1 not in application.requests(TWO, 0, 3)
    assert application.ask(6 * KIB, SIDE)[1] == -1
    assert application.engine.statistics().first[Cause.STREAM].stream == SIDE
    assert -1 not in application.requests(TWO, 3)
    application.end()
    application.check()


def test_blocks_of_two_streams_in_the_same_bytes_wait_for_each_other() -> None:
    step = watched((4, 1), (5, 2), (3, 3), streams=[0, 1, 0])
    offsets, arena = placed(step, [0, 0, 0])
    application = Application()
    application.engine.add_plan(0, step.nbytes, step.streams, step.threads, offsets, offsets < 0, arena)
    for _ in range(3):
        assert application.step(step)[0] == [0, 0, 0]
    assert application.engine.statistics().waits >= 6
    application.check()


def test_another_main_stream_waits_for_the_first_one() -> None:
    application = running(PAIR)
    assert application.step(PAIR, streams=[SIDE] * 3)[0] == [0, 0, 0]
    assert application.step(PAIR)[0] == [0, 0, 0]
    application.check()


def test_a_stream_waits_for_work_that_another_was_given_since_it_waited_last() -> None:
    step = WatchedStep.of(
        [(4 * KIB, 0, 0, 1), (6 * KIB, 0, 0, 3)]
    )  # The second is freed before the next step's second.
    application = Application()
    application.add_plan(planned(step))
    application.begin()
    application.free(application.ask(4 * KIB)[0])
    cyclic, _ = application.ask(6 * KIB)
    application.end()
    application.begin()
    first, offset = application.ask(4 * KIB, SIDE)
    assert offset >= 0
    application.free(first, cyclic)
    assert application.ask(6 * KIB, SIDE)[1] >= 0
    assert application.end() == StepFindings.NOTHING
    application.check()


def test_plans_take_turns_with_blocks_that_other_streams_use() -> None:
    application = running(PAIR)
    other = watched((9, 1), (2, 2))
    application.add_plan(planned(other), key=1)
    for _ in range(3):
        application.begin()
        application.requests(PAIR, 0, 2)
        block, _ = application.ask(3 * KIB)
        application.use(block, SIDE)
        application.free_elsewhere(block)
        application.end()
        assert application.step(other, 1)[0] == [0, 0]
    application.check()


def test_plans_that_are_replaced_leave_no_events() -> None:
    application = running(PAIR)
    for turn in range(40):
        application.add_plan(planned(PAIR))
        application.begin()
        block, _ = application.ask(4 * KIB)
        application.use(block, SIDE)
        application.free(block)
        application.requests(PAIR, 1)
        application.end()
        assert application.rehearsal.device_events <= 12, turn
    assert application.engine.statistics().replans == 40
    application.check()


def test_escaping_blocks_of_side_streams_keep_their_bytes() -> None:
    application = running(TWO)
    application.begin()
    kept, offset = application.ask(4 * KIB)
    application.use(kept, SIDE)
    application.requests(TWO, 1)
    application.end()
    for _ in range(3):
        offsets, _ = application.step(TWO)
        assert offsets == [-1 if i % 2 == 0 else planned(TWO).offsets[i] for i in range(6)], (
            "those of its stream share its bytes"
        )
    application.free(kept)
    assert application.step(TWO)[0] == planned(TWO).offsets.tolist()
    application.check()

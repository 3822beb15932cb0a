# SPDX-License-Identifier: Apache-2.0
"""The replay engine where steps do not go as planned: a deviation costs speed or memory, never bytes in use."""

from __future__ import annotations

import numpy as np
import pytest

from memc.replay.engine import Cause, FirstRequest, StepFindings, StepMode

from .applications import KIB, Application, placed, planned, running, watched

CHAIN = watched((4, 2), (6, 3), (4, 4), (8, 6), (2, 6), (3, 6))
"""Four sizes once and one twice; what the first two held is used again."""

TWENTY = watched(*[(i + 1, min(20, i + 3)) for i in range(20)])
"""Twenty sizes, each block alive for three requests."""


def test_static_steps_are_served_whole() -> None:
    application = running(CHAIN)
    for _ in range(10):
        offsets, found = application.step(CHAIN)
        assert offsets == planned(CHAIN).offsets.tolist()
        assert found == StepFindings.NOTHING
    statistics = application.engine.statistics()
    assert (statistics.steps, statistics.clean, statistics.requests, statistics.hits) == (11, 11, 66, 66)
    assert statistics.checked == 0
    assert set(statistics.counts.values()) == {0}
    application.check()


def test_one_tensor_more_than_planned_is_native_and_hits_go_on() -> None:
    application = running(TWENTY)
    application.begin()
    assert -1 not in application.requests(TWENTY, 0, 7)
    block, offset = application.ask(777)
    assert offset == -1
    assert -1 not in application.requests(TWENTY, 7)
    application.free(block)
    application.end()
    assert -1 not in application.step(TWENTY)[0]
    statistics = application.engine.statistics()
    assert statistics.counts[Cause.UNPLANNED] == 1
    assert statistics.first[Cause.UNPLANNED] == FirstRequest(2, 7, 7, 777, 8 * KIB, 0)
    assert statistics.checked == 0, "nothing was passed over"
    application.check()


def test_one_tensor_less_than_planned_passes_its_slot_over() -> None:
    application = running(TWENTY)
    application.begin()
    offsets = application.requests(TWENTY, 0, 5) + application.requests(TWENTY, 6)
    assert offsets == [offset for i, offset in enumerate(planned(TWENTY).offsets.tolist()) if i != 5]
    application.end()
    statistics = application.engine.statistics()
    assert statistics.counts[Cause.OUT_OF_ORDER] == 1
    assert statistics.checked == 14, "the rest of the step"
    assert -1 not in application.step(TWENTY)[0]
    assert application.engine.statistics().checked == 14, "no block outlived it"
    application.check()


def test_neighbours_that_swap_are_harmless_if_their_lives_allow_it() -> None:
    step = watched((4, 3), (6, 3), (10, 5), (1, 5), (1, 5))
    application = running(step)
    plan = planned(step)
    application.begin()
    second, at_second = application.ask(6 * KIB)
    first, at_first = application.ask(4 * KIB)
    assert [at_first, at_second] == plan.offsets[:2].tolist()
    application.free(first, second)
    assert application.requests(step, 2) == plan.offsets[2:].tolist()
    application.end()
    assert application.engine.statistics().counts[Cause.OUT_OF_ORDER] == 2
    application.check()


def test_neighbours_of_one_size_that_swap_their_lives_are_checked() -> None:
    # The first is freed early as planned, and the third takes its bytes; here the second is freed instead.
    step = watched((4, 2), (4, 4), (4, 4), (1, 4))
    offsets, arena = placed(step, [0, 4, 0, 8])
    application = Application()
    application.engine.add_plan(0, step.nbytes, step.streams, step.threads, offsets, offsets < -1, arena)
    application.begin()
    first, _ = application.ask(4 * KIB)
    second, _ = application.ask(4 * KIB)
    application.free(second)
    third, offset = application.ask(4 * KIB)
    assert offset == -1
    application.free(first, third)
    application.end()
    assert application.engine.statistics().first[Cause.BUSY] == FirstRequest(1, 2, 2, 4 * KIB, 4 * KIB, 0)
    application.check()


def test_a_grandparent_that_is_alive_is_seen_although_the_parent_was_native() -> None:
    # All three take the same bytes. While the first is alive the second is native; the third's predecessor is the second, free.
    step = watched((4, 1), (5, 2), (6, 3), (7, 4))
    offsets, arena = placed(step, [0, 0, 0, 0])
    application = Application()
    application.engine.add_plan(0, step.nbytes, step.streams, step.threads, offsets, offsets < 0, arena)
    application.begin()
    first, offset = application.ask(4 * KIB)
    assert offset == 0
    second, offset = application.ask(5 * KIB)
    assert offset == -1
    application.free(second)
    third, offset = application.ask(6 * KIB)
    assert offset == -1
    application.free(first)
    assert application.ask(7 * KIB)[1] == 0
    application.check()


def test_a_block_of_the_step_before_is_seen_although_its_successor_was_passed_over() -> None:
    # Bytes go from the third of a step to the first of the next; the second of this one, which has them between, is left out.
    step = watched((4, 1), (5, 2), (6, 3))
    offsets, arena = placed(step, [0, 0, 0])
    application = Application()
    application.engine.add_plan(0, step.nbytes, step.streams, step.threads, offsets, offsets < 0, arena)
    application.begin()
    application.requests(step, 0, 2)
    kept, offset = application.ask(6 * KIB)
    assert offset == 0
    application.end()
    application.begin()
    assert application.ask(5 * KIB)[1] == -1, "ahead of its turn, and the bytes are in use"
    application.free(kept)
    assert application.ask(6 * KIB)[1] == 0
    application.end()
    application.check()


def test_a_loss_that_is_kept_costs_its_slot_alone_and_then_escapes() -> None:
    step = watched((4, 2), (1, 4), (6, 3), (4, 4))
    application = running(step)
    plan = planned(step)
    kept: list[int] = []
    findings = []
    for _ in range(5):
        application.begin()
        first, offset = application.ask(4 * KIB)
        assert offset == plan.offsets[0]
        loss, at = application.ask(1 * KIB)
        kept.append(loss)
        assert at == (plan.offsets[1] if len(kept) == 1 else -1)
        application.free(first)
        assert application.requests(step, 2) == plan.offsets[2:].tolist()
        findings.append(application.end() & StepFindings.ESCAPED)
    assert findings == [0, 0, StepFindings.ESCAPED, 0, 0], "after two steps, and once"
    assert application.engine.escaping(0) == [1]
    (block,) = application.engine.live_blocks()
    assert block[1:] == (KIB, 0)
    # A plan without the loss: its bytes are left alone as long as it is alive.
    offsets = plan.offsets.copy()
    offsets[1] = -1
    application.engine.add_plan(0, step.nbytes, step.streams, step.threads, offsets, plan.cyclic, plan.arena_bytes)
    for _ in range(3):
        application.begin()
        first, offset = application.ask(4 * KIB)
        loss, at = application.ask(1 * KIB)
        assert at == -1
        application.free(first)
        assert application.requests(step, 2) == offsets[2:].tolist()
        application.free(loss)
        assert StepFindings.ESCAPED not in application.end()
    assert application.engine.statistics().planned_native == 3
    application.free(*kept)
    application.check()


def test_a_cycle_that_the_collector_frees_in_some_later_step() -> None:
    application = running(CHAIN)
    plan = planned(CHAIN)
    application.begin()
    kept, _ = application.ask(4 * KIB)
    assert application.requests(CHAIN, 1, 2) == plan.offsets[1:2].tolist()
    users = [
        i
        for i in range(2, 6)
        if plan.offsets[i] < plan.offsets[0] + 4 * KIB and plan.offsets[0] < (plan.offsets + plan.nbytes)[i]
    ]
    assert users
    offsets = application.requests(CHAIN, 2)
    assert [i + 2 for i, offset in enumerate(offsets) if offset < 0] == [i for i in users]
    application.end()
    offsets, _ = application.step(CHAIN)
    assert offsets[0] == -1
    application.begin()
    application.free_elsewhere(kept)
    assert application.requests(CHAIN) == plan.offsets.tolist()
    application.end()
    assert application.step(CHAIN)[0] == plan.offsets.tolist()
    application.check()


@pytest.mark.parametrize("share", [0.55, 0.75, 0.95])
def test_a_last_batch_that_is_smaller_takes_the_planned_slots(share: float) -> None:
    application = running(TWENTY)
    smaller = [round(share * int(nbytes)) for nbytes in TWENTY.nbytes]
    offsets, found = application.step(TWENTY, sizes=smaller)
    assert offsets == planned(TWENTY).offsets.tolist()
    assert found == StepFindings.NOTHING
    assert application.engine.statistics().counts[Cause.SMALLER] == 20
    assert application.step(TWENTY)[0] == planned(TWENTY).offsets.tolist()
    application.check()


def test_less_than_half_of_the_slot_and_more_than_the_slot_are_native() -> None:
    step = watched((64, 1), (200, 2))
    for share, cause in ((0.49, Cause.UNPLANNED), (1.01, Cause.LARGER)):
        application = running(step)
        application.begin()
        assert application.ask(round(share * 64 * KIB))[1] == -1
        assert application.engine.statistics().counts[cause] == 1
        assert application.ask(64 * KIB)[1] == 0, "the position stays"


def test_an_evaluation_between_steps_and_a_second_model_have_keys() -> None:
    application = running(CHAIN)
    other = watched((7, 1), (9, 3), (7, 3))
    application.add_plan(planned(other), key=1)
    for _ in range(4):
        assert -1 not in application.step(CHAIN)[0]
        assert -1 not in application.step(other, 1)[0]
    assert application.engine.statistics().clean == 9
    assert application.engine.statistics().checked == 0, "one stream, and no block outlives a step"
    application.check()


def test_requests_while_interrupted_are_native_and_the_position_stays() -> None:
    application = running(CHAIN)
    application.begin()
    offsets = application.requests(CHAIN, 0, 3)
    application.engine.interrupt()
    application.engine.interrupt()
    assert application.ask(8 * KIB)[1] == -1
    application.engine.resume()
    assert application.ask(8 * KIB)[1] == -1
    application.engine.resume()
    offsets += application.requests(CHAIN, 3)
    application.end()
    assert offsets == planned(CHAIN).offsets.tolist()
    assert application.engine.statistics().interrupted == 2
    assert application.engine.statistics().clean == 2


def test_a_step_that_an_exception_leaves() -> None:
    application = running(CHAIN)
    application.begin()
    kept, _ = application.ask(4 * KIB)
    application.ask(6 * KIB)
    assert application.end(completed=False) == StepFindings.NOTHING
    assert application.engine.end_step() == StepFindings.NOTHING, "there is none"
    offsets, _ = application.step(CHAIN)
    assert offsets[0] == offsets[1] == -1, "alive still"
    assert application.begin() == StepMode.REPLAY
    application.ask(4 * KIB)
    assert application.begin() == StepMode.REPLAY, "one that was not ended"
    application.check()


def test_frees_and_requests_of_other_threads_are_as_good() -> None:
    application = running(CHAIN)
    plan = planned(CHAIN)
    offsets, _ = application.step(CHAIN, threads=[0, 1, 1, 0, 1, 0])
    assert offsets == plan.offsets.tolist(), "the sequence counts, not who asks"
    application.begin()
    first, _ = application.ask(4 * KIB)
    second, _ = application.ask(6 * KIB)
    application.free_elsewhere(first)
    assert application.ask(4 * KIB)[1] == plan.offsets[2]
    application.free_elsewhere(second)
    assert application.ask(8 * KIB)[1] == plan.offsets[3]
    application.check()


def test_zero_bytes_are_not_requests() -> None:
    application = running(CHAIN)
    application.begin()
    assert application.ask(0)[1] == -1
    assert application.requests(CHAIN) == planned(CHAIN).offsets.tolist()


def test_more_requests_than_planned() -> None:
    application = running(CHAIN)
    application.begin()
    application.requests(CHAIN)
    assert application.ask(8 * KIB)[1] == -1
    application.end()
    assert application.engine.statistics().first[Cause.PAST_END] == FirstRequest(2, 6, 6, 8 * KIB, 0, 0)


def test_sizes_beyond_two_to_the_31() -> None:
    step = watched((1 << 22, 1), (1 << 23, 2))
    application = Application()
    application.rehearsal = type(application.rehearsal)()  # Addresses alone.
    application.add_plan(planned(step))
    assert application.step(step)[0] == [0, 0]
    assert application.engine.statistics().arena_bytes == 1 << 33


def test_columns_that_are_no_plan() -> None:
    engine = Application().engine
    one = np.ones(1, np.int64)
    for nbytes, stream, offset, arena, part in (
        (512, 0, 100, 2048, "row 0: offset: expected -1 or a multiple of 512, got 100"),
        (512, 0, 1024, 1500, "row 0: offset: expected an end within the arena's 1500, got 1024"),
        (512, 32, 0, 512, "row 0: stream class: expected 0 to 31, got 32"),
        (0, 0, 0, 512, "row 0: bytes: expected at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=part):
            engine.add_plan(0, nbytes * one, stream * one, 0 * one, offset * one, one < 0, arena)
    with pytest.raises(ValueError, match="no plan of key 5"):
        engine.drop_plan(5)

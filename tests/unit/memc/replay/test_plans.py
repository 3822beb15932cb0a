# SPDX-License-Identifier: Apache-2.0
"""Plans of watched steps: what has a place, where, after whom; and what is said of steps that cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memc.ir.errors import CheckError, InvalidError
from memc.replay import NATIVE, NEVER, ReplayPlan, StreamWait, WatchedStep, check_plan, make_plan

KIB = 1024


def one_stream(*rows: tuple[int, int]) -> WatchedStep:
    """Of rows (bytes, freed)."""
    return WatchedStep.of([(nbytes, 0, 0, freed) for nbytes, freed in rows])


def preds(plan: ReplayPlan, block: int) -> list[int]:
    return plan.preds[plan.first_pred[block] : plan.first_pred[block + 1]].tolist()


def test_blocks_take_each_others_bytes_in_turn() -> None:
    plan = make_plan(one_stream((4 * KIB, 1), (4 * KIB, 2), (100, 3)))
    assert plan.offsets.tolist() == [0, 0, 0]
    assert (plan.arena_bytes, plan.lower_bound, plan.gap_percent) == (4 * KIB, 4 * KIB, 0)
    assert [preds(plan, block) for block in range(3)] == [[1, 2], [0], [1]]


def test_a_cyclic_block_keeps_its_bytes_into_the_next_step() -> None:
    # 2 lives from its request into the next step, past request 0 there: not 1's bytes, which is live with it, nor 0's.
    step = one_stream((KIB, 1), (KIB, 3), (KIB, 4))
    plan = make_plan(step)
    assert step.cyclic.tolist() == plan.cyclic.tolist() == [False, False, True]
    assert plan.lower_bound == plan.arena_bytes == 2 * KIB
    assert plan.offsets[2] != plan.offsets[0] and plan.offsets[2] != plan.offsets[1]


def test_a_step_that_is_live_all_round_is_cut_somewhere() -> None:
    n = 6
    step = one_stream(*((KIB * (1 + at % 2), at + 2) for at in range(n)))
    plan = make_plan(step)
    assert plan.arena_bytes == plan.lower_bound == 3 * KIB


def test_what_outlives_a_step_and_what_has_no_bytes_stay_native() -> None:
    # 1 is freed in the next step after request 1 there, where its own successor is already live.
    step = one_stream((KIB, NEVER), (KIB, 5), (0, 3))
    assert step.escaping.tolist() == [True, True, False]
    plan = make_plan(step)
    assert plan.offsets.tolist() == [NATIVE, NATIVE, NATIVE]
    assert (plan.arena_bytes, plan.lower_bound, plan.native_bytes, len(plan.preds)) == (0, 0, 2 * KIB, 0)


def test_a_step_without_requests_has_an_empty_plan() -> None:
    plan = make_plan(WatchedStep.of([]))
    assert len(plan) == 0 and plan.arena_bytes == 0 and plan.first_pred.tolist() == [0]


def test_a_block_freed_before_its_own_request_of_the_next_step_may_live_all_round() -> None:
    plan = make_plan(one_stream((KIB, 1), (KIB, 3)))
    assert plan.offsets[0] != plan.offsets[1] and plan.arena_bytes == 2 * KIB


def test_streams_have_bytes_of_their_own() -> None:
    plan = make_plan(WatchedStep.of([(KIB, 0, 0, 1), (KIB, 1, 0, 2), (KIB, 0, 0, 3)]))
    assert plan.offsets[0] == plan.offsets[2] != plan.offsets[1]
    assert (plan.arena_bytes, plan.lower_bound) == (2 * KIB, KIB)


def test_a_wait_lets_another_stream_have_the_bytes() -> None:
    # 2 may follow 0, which is free before the event that its stream waits for, and 0 of the next step 2. That 1 and 3 are free
    # before the events of the same moments is not known: they keep their bytes all round.
    rows = [(4 * KIB, 0, 0, 1), (512, 0, 0, 2), (4 * KIB, 1, 0, 3), (512, 1, 0, 4)]
    assert make_plan(WatchedStep.of(rows)).arena_bytes == 8 * KIB
    plan = make_plan(WatchedStep.of(rows, [StreamWait(2, 0, 2, 1), StreamWait(4, 1, 4, 0)]))
    assert plan.arena_bytes == 5 * KIB and plan.offsets[0] == plan.offsets[2]
    with pytest.raises(CheckError, match=r"blocks \d and \d share bytes, and stream \d has not waited for stream \d"):
        check_plan(replace(plan, waits=()))


def test_merged_takes_the_later_free_and_gives_up_what_it_did_not_see() -> None:
    first = one_stream((KIB, 1), (KIB, 3), (KIB, 4), (KIB, 4), (KIB, NEVER))
    second = one_stream((KIB, 2), (KIB, 2), (KIB, 5), (KIB, NEVER), (KIB, 5))
    assert first.merged(second).freed.tolist() == [2, 3, 5, NEVER, NEVER]
    crossing = one_stream((KIB, 3), (KIB, 3))
    assert crossing.merged(one_stream((KIB, NEVER), (KIB, 2))).freed.tolist() == [3, 3]
    # Gradients that are dropped before the next step's first request, of which the last step's are never seen to be.
    ending = one_stream((KIB, 1), (KIB, 2))
    assert ending.merged(one_stream((KIB, 1), (KIB, NEVER))).freed.tolist() == [1, 2]


def test_merged_refuses_another_sequence() -> None:
    first = one_stream((KIB, 1))
    assert not first.same_sequence(one_stream((KIB, 1), (KIB, 2)))
    with pytest.raises(InvalidError, match="two of the same sequence"):
        first.merged(one_stream((KIB + 1, 1)))


def test_the_hash_is_that_of_bytes_and_streams() -> None:
    rows = [(KIB, 0, 0, 1), (KIB, 1, 0, 2)]
    step = WatchedStep.of(rows)
    assert step.sequence_hash == WatchedStep.of([(KIB, 0, 1, 2), (KIB, 1, 0, 2)]).sequence_hash
    assert step.sequence_hash != WatchedStep.of([(KIB, 0, 0, 1), (KIB, 0, 0, 2)]).sequence_hash
    assert make_plan(step).sequence_hash == step.sequence_hash


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(-1, 0, 0, 1)], "request 0: nbytes: expected 0 to"),
        ([(2**60 + 1, 0, 0, 1)], "request 0: nbytes"),
        ([(1, -1, 0, 1)], "request 0: streams"),
        ([(1, 0, 0, 0)], "request 0: freed: expected 1 to 2, or -1, got 0"),
        ([(1, 0, 0, 1), (1, 0, 0, 5)], "request 1: freed: expected 2 to 4"),
    ],
)
def test_steps_that_cannot_be_are_refused(rows: list[tuple[int, int, int, int]], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        WatchedStep.of(rows)


def test_waits_before_their_events_are_refused() -> None:
    for recorded, waited in ((1, 0), (0, 3), (-1, 0)):
        with pytest.raises(InvalidError, match="waits: expected moments from 0 to 2 with the event's first"):
            WatchedStep.of([(KIB, 0, 0, 1), (KIB, 1, 0, 2)], [StreamWait(recorded, 0, waited, 1)])


def test_columns_of_unequal_lengths_are_refused() -> None:
    one, two = np.ones(1, np.int64), np.ones(2, np.int64)
    with pytest.raises(InvalidError, match="step: freed: expected 1 values"):
        WatchedStep(one, one, one, two)


def test_wrong_plans_are_refused() -> None:
    plan = make_plan(one_stream((4 * KIB, 1), (4 * KIB, 3), (KIB, 3)))
    wrong = [
        (replace(plan, offsets=plan.offsets + 1), "misaligned"),
        (replace(plan, arena_bytes=plan.arena_bytes + 512), "arena: expected the end of its last block"),
        (replace(plan, lower_bound=0), "lower bound: expected"),
        (replace(plan, preds=plan.preds[::-1].copy()), "predecessors"),
        (replace(plan, freed=np.array([2, 3, 3])), "blocks 0 and 1 share bytes while both are live"),
        (replace(plan, freed=np.array([NEVER, 3, 3])), "block 0: expected offset -1 for a block that outlives a step"),
        (
            replace(plan, nbytes=np.array([4 * KIB, 0, KIB])),
            "block 1: expected offset -1 for a block that has no bytes",
        ),
    ]
    for each, message in wrong:
        with pytest.raises(CheckError, match=message):
            check_plan(each)


def test_no_block_lies_in_what_is_occupied() -> None:
    step = one_stream((KIB, 1), (2 * KIB, 3), (KIB, 3), (512, NEVER))
    plan = make_plan(step, occupied=[(1024, 1024), (4096, 512)])
    spans = [(int(start), int(start + size)) for start, size in zip(plan.offsets, plan.sizes) if start >= 0]
    assert all(end <= 1024 or 2048 <= start for start, end in spans)
    assert all(end <= 4096 or 4608 <= start for start, end in spans)
    assert plan.lower_bound == 3 * KIB and plan.arena_bytes == max(end for _, end in spans) == 4 * KIB


def test_each_stream_keeps_clear_of_what_is_occupied() -> None:
    plan = make_plan(WatchedStep.of([(KIB, 0, 0, 1), (2 * KIB, 1, 0, 2)]), occupied=[(512, 1024)])
    for start, size in zip(plan.offsets.tolist(), plan.sizes.tolist()):
        assert start + size <= 512 or start >= 1536
    assert plan.arena_bytes == 1536 + 3 * KIB


@pytest.mark.parametrize(
    "occupied", [[(0, 512), (0, 512)], [(0, 1024), (512, 512)], [(100, 512)], [(-512, 512)], [(0, 0)]]
)
def test_bytes_occupied_twice_are_refused(occupied: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="occupied: expected bytes of their own"):
        make_plan(one_stream((KIB, 1)), occupied=occupied)


def test_unknown_solvers_and_alignments_are_refused() -> None:
    with pytest.raises(ValueError, match="no solver"):
        make_plan(one_stream((KIB, 1)), solver="none")
    with pytest.raises(ValueError, match="alignment"):
        make_plan(one_stream((KIB, 1)), alignment=0)

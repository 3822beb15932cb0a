# SPDX-License-Identifier: Apache-2.0
"""Plans of random watched steps, against a byte-by-byte replay of several steps, and files of them with one number changed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.ir.errors import CheckError, InvalidError
from memc.replay import NATIVE, NEVER, ReplayPlan, StreamWait, WatchedStep, check_plan, make_plan, read_plan
from memc.replay.plan_file import plan_text

UNIT = 512
STEPS = 4


@st.composite
def steps(draw: st.DrawFn, streams: int = 3) -> WatchedStep:
    """A step of up to 14 requests, of which some live into the next step, some for ever."""
    n = draw(st.integers(1, 14))
    rows = []
    for at in range(n):
        last = draw(st.sampled_from([n, 2 * n, at + 2]))
        freed = draw(st.one_of(st.just(NEVER), st.integers(at + 1, max(at + 1, min(last, 2 * n)))))
        nbytes = draw(st.sampled_from([0, 1, 511, 512, 513, 1024, 1500, 2048, 4096]))
        rows.append((nbytes, draw(st.integers(0, streams - 1)), draw(st.integers(0, 1)), freed))
    waits = []
    for _ in range(draw(st.integers(0, 4)) if streams > 1 else 0):
        recorded = draw(st.integers(0, n))
        source, target = draw(st.permutations(range(streams)))[:2]
        waits.append(StreamWait(recorded, source, draw(st.integers(recorded, n)), target))
    return WatchedStep.of(rows, sorted(waits, key=lambda wait: wait.waited))


def bytes_of(plan: ReplayPlan, block: int) -> range:
    """Units of the arena."""
    start = int(plan.offsets[block]) // UNIT
    return range(start, start - (-int(plan.nbytes[block]) // UNIT))


def holders(plan: ReplayPlan) -> list[tuple[int, int, set[tuple[int, int]]]]:
    """Each placed block of several steps: its step, its number, and the (step, block) that had its units last. Asserts that none of
    these is live any more."""
    n = len(plan)
    last: dict[int, tuple[int, int]] = {}
    found = []
    for step in range(STEPS):
        for block in np.flatnonzero(plan.offsets != NATIVE).tolist():
            before = {last[unit] for unit in bytes_of(plan, block) if unit in last}
            for other_step, other in before:
                assert other_step * n + int(plan.freed[other]) <= step * n + block
            last.update(dict.fromkeys(bytes_of(plan, block), (step, block)))
            found.append((step, block, before))
    return found


def ordered(waits: tuple[StreamWait, ...], n: int, source: int, freed: int, target: int, moment: int) -> bool:
    """Whether waits lead from `source` after `freed` to `target` by `moment`: all chains, one wait after another."""
    if source == target:
        return True
    later = [
        (wait.target, wait.waited + shift * n)
        for shift in range(STEPS)
        for wait in waits
        if wait.source == source and wait.recorded + shift * n > freed and wait.waited + shift * n <= moment
    ]
    return any(ordered(waits, n, stream, waited, target, moment) for stream, waited in later)


@given(steps(), st.sampled_from(["auto", "best-fit", "first-fit"]))
@settings(max_examples=150, deadline=None)
def test_no_two_live_blocks_share_bytes_and_streams_wait(step: WatchedStep, solver: str) -> None:
    plan = make_plan(step, solver=solver)
    ends = [0]
    for number, block, before in holders(plan):
        ends.append(bytes_of(plan, block).stop * UNIT)
        for other_step, other in before:
            freed = other_step * len(plan) + int(plan.freed[other])
            moment = number * len(plan) + block
            streams = int(plan.streams[other]), int(plan.streams[block])
            assert ordered(step.waits, len(plan), streams[0], freed, streams[1], moment)
    assert plan.arena_bytes == max(ends)


@given(steps())
@settings(max_examples=100, deadline=None)
def test_predecessors_are_the_last_holders(step: WatchedStep) -> None:
    plan = make_plan(step)
    for number, block, before in holders(plan):
        if number == 0:
            continue
        preds = plan.preds[plan.first_pred[block] : plan.first_pred[block + 1]].tolist()
        assert preds == sorted({other for _, other in before} - {block})
        for other_step, other in before:
            assert other_step == (number if other < block else number - 1)


@given(steps(streams=1))
@settings(max_examples=100, deadline=None)
def test_the_bound_is_the_largest_live_set_of_a_steady_step(step: WatchedStep) -> None:
    plan = make_plan(step)
    n = len(step)
    places = [block for block in range(n) if not step.escaping[block] and step.nbytes[block]]
    live = [
        sum(
            -(-int(step.nbytes[block]) // UNIT) * UNIT
            for block in places
            for shift in range(STEPS)
            if block + shift * n <= moment < int(step.freed[block]) + shift * n
        )
        for moment in range(2 * n, 3 * n)
    ]
    assert plan.lower_bound == max(live) <= plan.arena_bytes
    assert sorted(np.flatnonzero(plan.planned).tolist()) == places


@given(steps(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_plan_with_one_number_changed_is_refused(
    tmp_path_factory: pytest.TempPathFactory, step: WatchedStep, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("plan") / "step.plan.json"
    plan = make_plan(step)
    path.write_text(plan_text(plan))
    again = read_plan(path)
    assert plan_text(again) == plan_text(plan) and again.offsets.tolist() == plan.offsets.tolist()
    fields = json.loads(plan_text(plan))
    row, column = data.draw(st.integers(0, len(step) - 1)), data.draw(st.integers(0, 4))
    change = data.draw(st.sampled_from([-512, -1, 1, 512]))
    fields["rows"][row][column] += change
    path.write_text(json.dumps(fields))
    with pytest.raises(InvalidError):
        read_plan(path)


@given(steps(), st.data())
@settings(max_examples=150, deadline=None)
def test_the_checker_refuses_a_block_moved_into_live_bytes(step: WatchedStep, data: st.DataObject) -> None:
    plan = make_plan(step)
    planned = np.flatnonzero(plan.planned).tolist()
    if len(planned) < 2:
        return
    moved, onto = data.draw(st.permutations(planned))[:2]
    n = len(plan)
    together = any(
        max(moved + a * n, onto) < min(int(plan.freed[moved]) + a * n, int(plan.freed[onto])) for a in (-1, 0, 1)
    )
    offsets = plan.offsets.copy()
    offsets[moved] = offsets[onto]
    if offsets[moved] == plan.offsets[moved]:
        return
    end = int((offsets + plan.sizes)[planned].max())
    with pytest.raises(CheckError, match="plan: ") as caught:
        check_plan(replace(plan, offsets=offsets, arena_bytes=end))
    if together:
        assert "share bytes while both are live" in str(caught.value)

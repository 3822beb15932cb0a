# SPDX-License-Identifier: Apache-2.0
"""Whether a plan holds for steps that follow each other, from nothing but its columns."""

from __future__ import annotations

import numpy as np

from memc.ir.errors import CheckError
from memc.solvers.placement import BufferColumns, Problem, Solution, Violation, check, lower_bound

from .plan import NATIVE, ReplayPlan
from .predecessors import predecessors
from .streams import StreamOrder
from .watched import Int64s, WatchedStep

STEPS = 3
"""In a row: each pair of blocks that can be live together is so within two of them."""


def check_plan(plan: ReplayPlan) -> None:
    """Raises CheckError that names the first thing wrong: a block with a place that lives for more than a step, an offset that is
    misaligned or outside the arena, two blocks with common bytes that are live together in any of three steps in a row (by
    memc's checker of placements), blocks of two streams with common bytes and no wait between them, wrong predecessors, a wrong
    arena or bound."""
    step = WatchedStep(plan.nbytes, plan.streams, plan.threads, plan.freed, plan.waits)
    planned = plan.planned
    for at in np.flatnonzero(planned & (step.escaping | (plan.nbytes == 0)))[:1]:
        what = "has no bytes" if plan.nbytes[at] == 0 else "outlives a step"
        raise CheckError(f"plan: block {at}: expected offset {NATIVE} for a block that {what}, got {plan.offsets[at]}")
    members = np.flatnonzero(planned)
    problem, offsets = _unrolled(plan, members)
    found = check(problem, Solution(offsets, plan.arena_bytes))
    if not found.ok:
        raise CheckError(f"plan: {_told(found.violation, found.first, found.second, members, plan)}")
    if lower_bound(problem) != plan.lower_bound:
        raise CheckError(f"plan: lower bound: expected {lower_bound(problem)} bytes, got {plan.lower_bound}")
    first, preds = predecessors(plan.offsets, plan.sizes)
    if not (np.array_equal(first, plan.first_pred) and np.array_equal(preds, plan.preds)):
        raise CheckError("plan: predecessors: expected those that the offsets tell, got others")
    _check_streams(plan)


def _unrolled(plan: ReplayPlan, members: Int64s) -> tuple[Problem, tuple[int, ...]]:
    """The planned blocks of some steps in a row as a problem without a circle, and their offsets."""
    starts = np.concatenate([members + step * len(plan) for step in range(STEPS)])
    ends = np.concatenate([plan.freed[members] + step * len(plan) for step in range(STEPS)])
    sizes = np.tile(plan.sizes[members], STEPS)
    offsets = np.tile(plan.offsets[members], STEPS)
    return Problem(BufferColumns(sizes, starts, ends), plan.alignment), tuple(offsets.tolist())


def _told(
    violation: Violation,
    first: int | None,
    second: int | None,
    members: Int64s,
    plan: ReplayPlan,
) -> str:
    blocks = [int(members[at % len(members)]) for at in (first, second) if at is not None]
    if violation is Violation.OVERLAP:
        return f"blocks {blocks[0]} and {blocks[1]} share bytes while both are live"
    if violation is Violation.WRONG_PEAK:
        return f"arena: expected the end of its last block, got {plan.arena_bytes} bytes"
    return f"block {blocks[0]}: offset {plan.offsets[blocks[0]]} is {violation.name.lower().replace('_', ' ')}"


def _check_streams(plan: ReplayPlan) -> None:
    """Blocks of two streams in the same bytes one after the other need a wait between them. That of the last holder is enough:
    the waits before it came before."""
    if len(plan) == 0 or (plan.streams == plan.streams[0]).all():
        return
    order = StreamOrder(len(plan), plan.waits)
    pred_of = zip(np.repeat(np.arange(len(plan)), np.diff(plan.first_pred)).tolist(), plan.preds.tolist())
    for block, pred in pred_of:
        source, target = int(plan.streams[pred]), int(plan.streams[block])
        moment = block if pred < block else block + len(plan)
        if source != target and not order.follows(source, int(plan.freed[pred]), target, moment):
            raise CheckError(
                f"plan: blocks {pred} and {block} share bytes, and stream {target} has not waited for stream {source} between them"
            )

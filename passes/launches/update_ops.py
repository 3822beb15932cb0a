# SPDX-License-Identifier: Apache-2.0
"""The ops of a training step that do nothing but give states their new content, element by element.

An optimizer's updates of weights and moments, and what scales their gradients before. Nothing else waits for them, so they
may move towards the end of the step, and threads may compute them without knowing of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memc.ir.copies import is_copy, is_written_back
from memc.ir.core import Function, Op, Role, Value
from memc.ir.op_queries import assigned_state, has, pointwise_operands
from memc.ir.ops.shared.op_def import Trait
from memc.ir.types import DType
from memc.passes.launches.join_kernels import can_join


def is_flat(op: Op) -> bool:
    """Whether each element of an op's result needs the same element of its operands and numbers that all elements share:
    then its shape does not matter. All must be floats, but for booleans that all elements share."""
    if not can_join(op) or has(op, Trait.RANDOM):
        return False
    whole = op.result.type.shape
    inner = [v for o in op.region.ops for v in (*o.operands, *o.results)] if op.region is not None else []
    if any(v.type.shape != whole and v.type.elements != 1 for v in inner):
        return False
    if any(o.name == "constant" and o.result.type.elements > 1 for o in (op.region.ops if op.region else ())):
        return False
    if op.region is not None and any(not _is_elementwise(o) for o in op.region.ops):
        return False
    if op.region is None and not _is_elementwise(op):
        return False
    if not all(_is_float_or_switch(v) for v in (*op.operands, *inner)) or not op.result.type.dtype.is_float:
        return False
    pointwise = pointwise_operands(op)
    return all(n in pointwise or v.type.elements == 1 for n, v in enumerate(op.operands))


def _is_float_or_switch(value: Value) -> bool:
    return value.type.dtype.is_float or value.type.dtype is DType.BOOL and value.type.elements == 1


def _is_elementwise(op: Op) -> bool:
    return op.name == "constant" or has(op, Trait.ELEMENTWISE)


def update_ops(function: Function) -> set[Op]:
    """Flat ops that assign states, on the host too, and flat ones that only those read and that need no more bytes than they make."""
    uses, returned = function.uses(), set(function.returns)
    refused: set[Op] = set()
    while True:
        found: set[Op] = set()
        for op in reversed(function.ops):
            if op not in refused and _is_update(op, uses, found, op.results[0] in returned if op.results else True):
                found.add(op)
        # What reads a state must run before an op that assigns it, which only others among them wait for.
        elsewhere = {state[1] for op in function.ops if op not in found and (state := assigned_state(op)) is not None}
        early = {op for op in found if any(v in elsewhere for v in op.operands)}
        if not early:
            return found
        refused |= early


def _is_update(op: Op, uses: Mapping[Value, Sequence[Op]], found: set[Op], is_returned: bool) -> bool:
    if len(op.results) != 1 or not is_flat(op):
        return False
    users = [user for user in uses[op.result] if not is_copy(user)]
    if any(user not in found for user in users):
        return False
    copied = [user.results[0] for user in uses[op.result] if is_copy(user)]
    if assigned_state(op) is not None or (copied and all(map(is_written_back, copied))):
        return True
    made = [v for v in op.operands if v.type.elements > 1 and v.root.role is not Role.STATE]
    return not is_returned and not copied and bool(users) and op.result.type.elements > 1 and len(made) <= 1

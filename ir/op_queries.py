# SPDX-License-Identifier: Apache-2.0
"""What passes ask of any op, also of fused groups and of foreign ops (for which the answer is "nothing")."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.copies import is_brought_back, is_done
from memc.ir.core import FUSED, Op, Role, Value
from memc.ir.ops.shared.op_def import Trait, chosen_kernel, lookup, main_op


def has(op: Op, trait: Trait) -> bool:
    """Whether a registered op has `trait`; a foreign op and a fused group have none."""
    definition = lookup(op.name)
    return definition is not None and trait in definition.traits


def draws(op: Op) -> bool:
    """Whether an op draws at random: by its trait, or attention with a dropout, whose last operand is a seed, too."""
    return has(op, Trait.RANDOM) or (op.name == "attention_training" and "stream" in op.attrs)


def flops(op: Op) -> int:
    """Floating-point operations of an op or of all ops of a fused group; 0 for a foreign op."""
    if op.region is not None:
        return sum(flops(inner) for inner in op.region.ops)
    definition = lookup(op.name)
    return definition.flops(op) if definition else 0


def in_place_operands(op: Op) -> Sequence[int]:
    """Operands whose bytes result 0 may take over, as `OpDef.in_place` states it."""
    if op.name == FUSED:
        return _in_place_of_region(op) if op.plan.library_kernel is None else _in_place_of_library(op)
    definition = lookup(op.name)
    if definition is None or definition.in_place is None:
        return ()
    return definition.in_place(op)


def view_offset(op: Op) -> int | None:
    """Byte offset of result 0 inside operand 0 if the result is a contiguous part of it, else None."""
    definition = lookup(op.name)
    if definition is None or definition.view is None or op.region is not None:
        return None
    return definition.view(op)


def has_no_code(op: Op) -> bool:
    """Whether an op does nothing: a constant, or a view that lies where it looks."""
    if op.name == "constant":
        return True
    if is_done(op):
        return False
    within = view_offset(op)
    if within is None or op.result.root is not op.operands[0].root:
        return False
    return op.result.offset_in_root == op.operands[0].offset_in_root + within


def origin_of(value: Value) -> tuple[Value, int]:
    """What a value is a view of, itself if of nothing, and from which byte on."""
    at = 0
    while value.op is not None and (offset := view_offset(value.op)) is not None:
        value, at = value.op.operands[0], at + offset
    return value, at


def depth_axis(product: Op, side: int) -> int:
    """The axis of operand 0 or 1 that a `matmul` of matrices, or the one that a group begins with, sums over."""
    transposed = bool(main_op(product).attrs.get(("transpose_a", "transpose_b")[side], False))
    return int(transposed != (side == 0))


def assigned_state(op: Op) -> tuple[int, Value] | None:
    """The operand (number and value) that result 0 is the new content of: a state, or None.

    Such an op is an `assign`, or a fused group that ends in one.
    """
    number = _assigned_operand(op)
    if number is None:
        return None
    state = op.operands[number]
    if is_brought_back(state):  # It lies in a state of the arena.
        state = state.root
    return (number, state) if state.role is Role.STATE else None


def _assigned_operand(op: Op) -> int | None:
    if op.name == "assign":
        return 0
    if op.region is None or len(op.results) != 1:
        return None
    last = op.region.returns[0].op
    if last is None or last.name != "assign":
        return None
    state = last.operands[0]
    return op.region.params.index(state) if state in op.region.params else None


def pointwise_operands(op: Op) -> Sequence[int]:
    """Operands that an op with one result reads only at the position of the result element that it computes."""
    if op.region is not None:
        return _in_place_of_region(op)
    if not has(op, Trait.ELEMENTWISE):
        return ()
    shape, size = op.result.type.shape, op.result.type.dtype.itemsize
    return [n for n, v in enumerate(op.operands) if v.type.shape == shape and v.type.dtype.itemsize == size]


def slice_offsets(op: Op) -> Sequence[int | None]:
    """Byte offset of each operand inside result 0 where it is a contiguous part of it, else None."""
    definition = lookup(op.name)
    if definition is None or definition.slices is None or op.region is not None:
        return [None] * len(op.operands)
    return definition.slices(op)


def _in_place_of_library(op: Op) -> Sequence[int]:
    """What the kernel that a group is called with says of it."""
    kernel = chosen_kernel(op)
    return kernel.in_place(op) if kernel is not None and kernel.in_place is not None else ()


def _in_place_of_region(op: Op) -> Sequence[int]:
    """Operands that the group reads only at the position of the result element that it is about to write.

    An elementwise op reads an operand of its own shape at its own position, and a reshape keeps the flat position.
    A broadcast operand, and whatever feeds a reduction or a data movement, is read elsewhere.
    """
    assert op.region is not None
    if len(op.results) != 1:
        return ()
    elsewhere: set[Value] = set()
    for inner in reversed(op.region.ops):
        is_reshape = inner.name == "reshape"
        if not elsewhere.isdisjoint(inner.results) or not (is_reshape or has(inner, Trait.ELEMENTWISE)):
            elsewhere.update(inner.operands)
        elif not is_reshape:
            shape = inner.results[0].type.shape
            elsewhere.update([v for v in inner.operands if v.type.shape != shape])
    result = op.result.type
    return [
        index
        for index, param in enumerate(op.region.params)
        if param not in elsewhere
        and param.type.elements == result.elements
        and param.type.dtype.itemsize == result.dtype.itemsize
    ]

# SPDX-License-Identifier: Apache-2.0
"""Which operands an op leaves where they lie, inside its result 0: for the checkers that follow bytes."""

from __future__ import annotations

from ..core import Op, Value
from ..op_queries import slice_offsets, view_offset
from ..ops.shared.op_def import lookup


def may_share_bytes(op: Op) -> bool:
    """Whether an op of this name may be a view or join slices, and has an operand and a result."""
    definition = lookup(op.name)
    if definition is None or (definition.view is None and definition.slices is None):
        return False
    return bool(op.operands) and bool(op.results)


def offset_in_operand(op: Op) -> int | None:
    """From which byte of operand 0 on result 0 is left where it lies already, as the view that it is; None if it is not."""
    root, begin = _bytes(op.results[0])
    other, start = _bytes(op.operands[0])
    if root is not other or op.plan.in_place is not None or view_offset(op) != begin - start:
        return None
    return begin - start


def kept_slices(op: Op) -> dict[int, int]:
    """The operands that lie already in their slices of result 0, with the byte offsets of these."""
    root, begin = _bytes(op.results[0])
    found: dict[int, int] = {}
    for number, offset in enumerate(slice_offsets(op)):
        if offset is not None and _bytes(op.operands[number]) == (root, begin + offset):
            found[number] = offset
    return found


def _bytes(value: Value) -> tuple[Value, int]:
    """The value's root, and where it begins there."""
    alias = value.alias
    return (value, 0) if alias is None else (alias.root, alias.offset)

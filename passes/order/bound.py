# SPDX-License-Identifier: Apache-2.0
"""A bound on the peak of a function over all orders of its ops and all alias plans, from what single ops need.

While an op runs, each of its operands lies somewhere. Operands lie apart unless they share a view's bytes, or one was
written straight into another, a concat that it is a slice of; and so does a result that is no view, is not written in place, and takes no operand in as a slice. What may end up in the caller's
buffer for a returned value counts for nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT, is_fixed
from memc.ir.op_queries import assigned_state, in_place_operands, slice_offsets, view_offset
from memc.ir.sizes import align


def order_bound(function: Function, alignment: int = ALIGNMENT) -> int:
    """Bytes: no order of `function`, which holds no aliases yet, has a lower peak, whatever aliases are made."""
    origin: dict[Value, Value] = {param: param for param in function.params}
    """What a value is a view of, if all views are made; itself if of nothing."""
    around: dict[Value, set[Value]] = {}
    """Concats that a value may have been written straight into."""
    for op in function.ops:
        origin.update((value, value) for value in op.results)
        if view_offset(op) is not None:
            origin[op.results[0]] = origin[op.operands[0]]
        for operand, offset in zip(op.operands, slice_offsets(op)):
            if offset is not None:
                around.setdefault(origin[operand], set()).add(op.results[0])
    outside = _possible_outputs(function)
    outside.update(value for value in function.values() if is_fixed(value))
    outside.update(op.results[0] for op in function.ops if assigned_state(op) is not None)
    return max((_bytes_of(op, origin, around, outside, alignment) for op in function.ops), default=0)


def _possible_outputs(function: Function) -> set[Value]:
    """Returned values, and values whose bytes may become theirs."""
    found = set(function.returns)
    for op in reversed(function.ops):
        if not op.results or op.results[0] not in found:
            continue
        if view_offset(op) is not None:
            found.add(op.operands[0])
        found.update(op.operands[k] for k in in_place_operands(op))
        found.update(op.operands[k] for k, offset in enumerate(slice_offsets(op)) if offset is not None)
    return found


def _bytes_of(
    op: Op, origin: dict[Value, Value], around: dict[Value, set[Value]], outside: set[Value], alignment: int
) -> int:
    """Arena bytes that `op` needs at least while it runs."""
    sizes: dict[Value, int] = {}
    for value in op.operands:
        if origin[value] not in outside:
            sizes[origin[value]] = max(sizes.get(origin[value], 0), align(value.type.nbytes, alignment))
    total = sum(size for value, size in sizes.items() if not _within(value, sizes.keys(), around))
    for number, value in enumerate(op.results):
        size = 0 if value in outside else align(value.type.nbytes, alignment)
        if number or not (origin[value] is not value or in_place_operands(op) or _takes_slices(op)):
            total += size
        elif _takes_slices(op):
            total = max(total, size)
    return total + (0 if op.workspace is None else align(op.workspace.type.nbytes, alignment))


def _within(value: Value, others: Collection[Value], around: dict[Value, set[Value]]) -> bool:
    """Whether the value may lie inside another one of `others`."""
    pending, seen = [value], {value}
    while pending:
        found = around.get(pending.pop(), set()) - seen
        if any(other in found for other in others):
            return True
        seen |= found
        pending.extend(found)
    return False


def _takes_slices(op: Op) -> bool:
    return any(offset is not None for offset in slice_offsets(op))

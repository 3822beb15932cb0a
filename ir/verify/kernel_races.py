# SPDX-License-Identifier: Apache-2.0
"""Checks that ops which share one kernel may do so: no thread reads or writes what another one writes.

Shares no code with the passes that put ops into one kernel. Ops of one kernel have one number as `joint` in their plans. Its
threads run in any order and do not wait for each other:

- alone, horizontal fusion: a thread computes the element with its number of each op's result, op by op;
- with `lane`, a multi-tensor kernel: the ops of a lane are as above, and those of different lanes run at the same time;
- with `rows`, row-wise fusion: a team of threads computes one row, each thread its own columns; a reduced row is a number that the whole
  team knows once it is computed.

So two accesses of different ops to common bytes, one of which writes, must be made by one thread: both go element by
element over exactly the same bytes. Whatever is read in another way must not be written by any of the ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ..copies import is_done
from ..core import Function, Op, Value
from ..errors import CheckError
from ..interval_index import IntervalIndex
from ..module import Module
from ..op_queries import view_offset
from ..ops.shared.common import ints_attr
from ..ops.shared.op_def import Trait, lookup

REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")


@dataclass(frozen=True)
class Access:
    """Bytes that one op reads or writes in a kernel."""

    op: Op
    value: Value
    writes: bool
    by_element: bool
    """Each element by the thread that computes the result's element at the same position, and by no other."""

    @property
    def space(self) -> object:
        """What the addresses count in: a space of the plan, or a storage of its own."""
        root = self.value.root
        return root if root.placement is None else root.placement.space

    @property
    def begin(self) -> int:
        """The first byte's address in its space."""
        root = self.value.root
        return self.value.offset_in_root + (0 if root.placement is None else root.placement.offset)

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.begin + self.value.type.nbytes

    def races_with(self, other: Access) -> bool:
        """Whether two threads may touch a byte, one of them writing."""
        if not (self.writes or other.writes) or self.space != other.space:
            return False
        if max(self.begin, other.begin) >= min(self.end, other.end):
            return False
        same = (self.begin, self.end, self.value.type.elements) == (other.begin, other.end, other.value.type.elements)
        return not (same and self.by_element and other.by_element)


def check_kernel_races(module: Module) -> None:
    """Raise CheckError naming function, ops and values unless the ops of every joint kernel may run at the same time."""
    for function in module.functions:
        for ops in joint_groups(function):
            _check_group(function, ops)


def joint_groups(function: Function) -> Iterator[list[Op]]:
    """The ops of each joint kernel, in order. Raises CheckError where other ops with code stand between them."""
    seen: set[int] = set()
    group: list[Op] = []
    for op in function.ops:
        number = op.plan.joint
        if group and number == group[0].plan.joint:
            group.append(op)
            continue
        if number is None and not group:
            continue
        if has_no_code(op):
            continue
        if group:
            yield group
            group = []
        if number is not None:
            if number in seen:
                _fail(function, op, f"expected the ops of joint kernel {number} one after another, got others between")
            seen.add(number)
            group = [op]
    if group:
        yield group


def has_no_code(op: Op) -> bool:
    """Whether nothing runs for an op: a constant, or a view of bytes where they lie."""
    if op.name == "constant":
        return True
    if is_done(op):
        return False  # It waits, although its result lies where the copy put it.
    within = view_offset(op) if op.plan.joint is None else None
    if within is None or op.result.root is not op.operands[0].root:
        return False
    return op.result.offset_in_root == op.operands[0].offset_in_root + within


def _check_group(function: Function, ops: Sequence[Op]) -> None:
    for op in ops:
        if len(op.results) != 1 or op.workspace is not None or op.plan.library_kernel is not None:
            _fail(function, op, "expected one result, no workspace and no library kernel in a joint kernel")
        for name, own, first in (("lane", op.plan.lane, ops[0].plan.lane), ("rows", op.plan.rows, ops[0].plan.rows)):
            if (own is None) != (first is None):
                _fail(function, op, f"expected `{name}` on all ops of joint kernel {op.plan.joint} or on none")
    if ops[0].plan.rows is not None:
        _check_pairs(function, list(_row_accesses(function, ops)))
        return
    lanes: dict[int | None, list[Op]] = {}
    for op in ops:
        lanes.setdefault(op.plan.lane, []).append(op)
    for lane in lanes.values():
        for op in lane:
            if op.result.type.elements != lane[0].result.type.elements:
                expected = lane[0].result.type.elements
                _fail(function, op, f"expected {expected} elements, got {op.result.type.elements}")
    _check_pairs(function, [access for op in ops for access in _element_accesses(op)])


def _check_pairs(function: Function, accesses: Sequence[Access]) -> None:
    """No access races with one of another op; none at all meets a write of another lane."""
    spaces: dict[object, IntervalIndex[Access]] = {}
    for access in accesses:
        spaces.setdefault(access.space, IntervalIndex()).add(access.begin, access.end, access)
    for write in (access for access in accesses if access.writes):
        met = spaces[write.space]
        for other in (met.items[number][2] for number in met.over(write.begin, write.end)):
            if other.op is write.op:
                continue
            if write.races_with(other) or write.op.plan.lane != other.op.plan.lane:
                what = "writes" if other.writes else "reads"
                message = f"writes bytes that {other.op.name} %{other.op.result.name} {what} (%{other.value.name})"
                _fail(function, write.op, f"expected no race between threads, got one: it {message} in the same kernel")


def _element_accesses(op: Op) -> Iterator[Access]:
    own = _own_elements(op)
    for number, operand in enumerate(op.operands):
        yield Access(op, operand, False, number in own)
    yield Access(op, op.result, True, True)


def _row_accesses(function: Function, ops: Sequence[Op]) -> Iterator[Access]:
    """Accesses of a kernel with a team for each row; numbers of rows that the kernel has computed are not read again."""
    rows = ops[0].plan.rows
    shape = max((v.type.shape for op in ops for v in (*op.operands, op.result)), key=math.prod)
    if rows is None or rows > len(shape):
        _fail(function, ops[0], f"expected `rows` to be 0 to {len(shape)}, got {rows!r}")
    numbers = math.prod(shape[:rows])
    made: set[Value] = set()
    for op in ops:
        size = op.result.type.elements
        if op.plan.rows != rows or size not in (math.prod(shape), numbers):
            _fail(function, op, f"expected rows of {shape}, told apart by {rows} axes, got {op.result.type}")
        local = _stays_in_row(op)
        for operand in op.operands:
            whole = operand.type.elements == math.prod(shape)
            if whole or not local or operand not in made:
                yield Access(op, operand, False, whole and local)
        yield Access(op, op.result, True, True)
        made.add(op.result)


def _stays_in_row(op: Op) -> bool:
    """Whether an op computes of each row, column by column, only with what lies in that row and column, and numbers of it."""
    return all(_stays_in_row(inner) for inner in op.region.ops) if op.region is not None else _is_row_step(op)


def _is_row_step(op: Op) -> bool:
    if op.name in ("constant", "broadcast"):
        return True
    if op.name in REDUCTIONS:
        axes, rank = ints_attr(op.attrs, "axes"), op.operands[0].type.rank
        return bool(op.attrs.get("keepdims")) and sorted(axes) == list(range(rank - len(axes), rank))
    definition = lookup(op.name)
    return definition is not None and Trait.ELEMENTWISE in definition.traits


def _own_elements(op: Op) -> set[int]:
    """Operands of which a thread reads only the element with the number of the result's that it computes."""
    if op.region is None:
        return {n for n, v in enumerate(op.operands) if _keeps_place(op, v)}
    places: dict[Value, bool] = dict.fromkeys(op.region.returns, True)
    for inner in reversed(op.region.ops):
        kept = all(places.get(result, True) for result in inner.results)
        for operand in inner.operands:
            places[operand] = places.get(operand, True) and kept and _keeps_place(inner, operand)
    return {n for n, param in enumerate(op.region.params) if places.get(param, True)}


def _keeps_place(op: Op, operand: Value) -> bool:
    """Whether an op needs of an operand only the element at the flat position of the result element."""
    definition = lookup(op.name)
    if definition is None or operand.type.elements != op.results[0].type.elements:
        return False
    if op.name == "reshape":
        return True
    return Trait.ELEMENTWISE in definition.traits and operand.type.shape == op.results[0].type.shape


def _fail(function: Function, op: Op, message: str) -> NoReturn:
    location = f" ({op.location})" if op.location else ""
    name = f", %{op.results[0].name}" if op.results else ""
    raise CheckError(f"bad plan: @{function.name}, {op.name}{location}{name}: {message}")

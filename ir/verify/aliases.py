# SPDX-License-Identifier: Apache-2.0
"""Validity of aliases, in-place ops and placements: no value's bytes may be overwritten before its last use.

An op *ties* an operand to result 0 when both are the same bytes: a view, an `in_place` operand, or a concat's operand
already in its slice. Every alias must follow from ties, and every write is checked against all values of its root.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..copies import is_brought_back, is_start
from ..core import FUSED, Alias, Function, Op, Placement, Role, Value
from ..interval_index import IntervalIndex
from ..liveness import updates_state
from ..ops.shared.op_def import Trait, lookup
from .error_location import Where

Interval = tuple[int, int]
"""Where bytes of a root begin, and one past their end."""


@dataclass(frozen=True)
class Ties:
    """How an op shares bytes between operands and its result 0, as the aliases stand."""

    view: bool = False
    """Result 0 is a view of operand 0: the op writes nothing to it."""
    in_place: int | None = None
    """The operand that result 0 overwrites."""
    slices: tuple[int, ...] = ()
    """Operands that are already in their place inside result 0."""
    foreign: bool = False
    """An op that memc does not know: every result overwrites the operands that have exactly its bytes."""


def verify_aliases(function: Function) -> None:
    """Raise InvalidError unless the function's aliases, in-place ops and placements are sound."""
    values = set(function.values())
    for index, op in enumerate(function.ops):
        where = Where(function.name, index, op)
        for result in op.results:
            if result.alias is not None:
                _alias(where, result, result.alias, values)
        for value in op.results if op.workspace is None else (*op.results, op.workspace):
            if value.placement is not None:
                _placement(where, value, value.placement)
        if op.plan.in_place is not None:
            _in_place(where, op, op.plan.in_place)
    for param in function.params:
        if param.placement is not None:
            _placement(Where(function.name), param, param.placement)
    if any(v.alias is not None for v in values):
        ties = [ties_of(op) for op in function.ops]
        _justified(function, ties)
        _not_clobbered(function, ties)


def ties_of(op: Op) -> Ties:
    """The ties of `op` that hold: the rule of its definition allows them and the aliases agree."""
    if not op.results:
        return Ties()
    result = op.results[0]
    key = op.plan.in_place
    in_place = key if key is not None and key < len(op.operands) else None
    definition = lookup(op.name)
    if definition is None:
        return Ties(in_place=in_place, foreign=op.name != FUSED)
    view = False
    if definition.view is not None and in_place is None:
        offset = definition.view(op)
        view = offset is not None and _tied(op.operands[0], result, -offset)
    slices: list[int] = []
    if definition.slices is not None:
        for number, (operand, offset) in enumerate(zip(op.operands, definition.slices(op))):
            if offset is not None and _tied(operand, result, offset):
                slices.append(number)
    return Ties(view, in_place, tuple(slices))


def in_place_rule(op: Op) -> Sequence[int]:
    """Operands that result 0 may overwrite. A foreign op is trusted, as its kernel is not ours."""
    if op.name == FUSED:
        return _in_place_of_region(op)
    definition = lookup(op.name)
    if definition is None:
        return range(len(op.operands))
    return definition.in_place(op) if definition.in_place is not None else ()


def _in_place_of_region(op: Op) -> list[int]:
    """Parameters read only at the flat position of the result element that is about to be written."""
    if op.region is None or len(op.results) != 1:
        return []
    exact: dict[Value, bool] = {op.region.returns[0]: True}
    for inner in reversed(op.region.ops):
        definition = lookup(inner.name)
        elementwise = definition is not None and Trait.ELEMENTWISE in definition.traits
        for operand in inner.operands:
            same = inner.name == "reshape" or (elementwise and operand.type.shape == inner.results[0].type.shape)
            exact[operand] = exact.get(operand, True) and same and exact.get(inner.results[0], True)
    sizes = op.results[0].type
    return [
        number
        for number, param in enumerate(op.region.params)
        if exact.get(param, True)
        and (param.type.elements, param.type.dtype.itemsize) == (sizes.elements, sizes.dtype.itemsize)
    ]


def _tied(operand: Value, result: Value, offset: int) -> bool:
    """Whether the operand lies `offset` bytes into the result."""
    return operand.root is result.root and operand.offset_in_root == result.offset_in_root + offset


def interval_of(value: Value) -> Interval:
    """The bytes of `value` inside its root."""
    return value.offset_in_root, value.offset_in_root + value.type.nbytes


def overlap(a: Interval, b: Interval) -> bool:
    """Whether two intervals share a byte."""
    return max(a[0], b[0]) < min(a[1], b[1])


def _alias(where: Where, value: Value, alias: Alias, values: set[Value]) -> None:
    root = alias.root
    if value.op is not None and value.op.name == "constant":
        where.fail(f"expected no alias on a constant, got one to %{root.name}", value)
    if root not in values or (root.op is not None and root is root.op.workspace):
        where.fail(f"expected an alias of a parameter or result of this function, got %{root.name}", value)
    if root is value or root.alias is not None:
        where.fail(f"expected the alias's root to be no alias itself, got %{root.name}", value)
    if alias.offset < 0 or alias.offset + value.type.nbytes > root.type.nbytes:
        where.fail(
            f"expected the alias's bytes inside the {root.type.nbytes} bytes of %{root.name}, "
            f"got [{alias.offset}, {alias.offset + value.type.nbytes})",
            value,
        )


def _placement(where: Where, value: Value, place: Placement) -> None:
    if place.offset < 0 or not place.space:
        where.fail(f"expected a space and a non-negative offset, got @{place.space}[{place.offset}]", value)
    if value.alias is None:
        return
    root = value.alias.root.placement
    if root is None or (root.space, root.offset + value.alias.offset) != (place.space, place.offset):
        expected = f"@{root.space}[{root.offset + value.alias.offset}]" if root is not None else "no placement"
        where.fail(
            f"expected {expected} as its root %{value.root.name} has it, got @{place.space}[{place.offset}]", value
        )


def _in_place(where: Where, op: Op, key: int) -> None:
    if key >= len(op.operands) or not op.results:
        where.fail(f"expected in_place to be the index of one of {len(op.operands)} operands, got {key!r}")
    if key not in in_place_rule(op):
        where.fail(f"expected in_place to be one of {list(in_place_rule(op))} as {op.name} allows, got {key}")
    operand, result = op.operands[key], op.results[0]
    if operand.type.nbytes != result.type.nbytes:
        where.fail(f"expected an in-place operand of {result.type.nbytes} bytes, got {operand.type.nbytes}", operand)
    if not _tied(operand, result, 0):
        where.fail(
            f"expected the in-place result at %{operand.root.name}[{operand.offset_in_root}] like its operand, "
            f"got %{result.root.name}[{result.offset_in_root}]",
            result,
        )


def _justified(function: Function, ties: list[Ties]) -> None:
    """Every alias follows from ties, or is a new value of a donated state, or one that a copy brings back."""
    leader: dict[Value, Value] = {}

    def find(value: Value) -> Value:
        passed = []
        while value in leader:
            passed.append(value)
            value = leader[value]
        leader.update((other, value) for other in passed)  # So that long chains are walked once.
        return value

    def join(a: Value, b: Value) -> None:
        a, b = find(a), find(b)
        if a is not b:
            leader[a] = b

    for op, tie in zip(function.ops, ties):
        tied = [0] if tie.view else [*tie.slices, *([tie.in_place] if tie.in_place is not None else [])]
        for number in tied:
            join(op.operands[number], op.results[0])
        for result in op.results if tie.foreign else ():
            for operand in op.operands:
                if operand.root is result.root and interval_of(operand) == interval_of(result):
                    join(operand, result)
    brought = (value for op in function.ops if is_start(op) for value in op.results if is_brought_back(value))
    for value in (*brought, *filter(updates_state, function.returns)):
        join(value, value.root)
    for index, op in enumerate(function.ops):
        for result in op.results:
            if result.alias is not None and find(result) is not find(result.root):
                Where(function.name, index, op).fail(
                    f"expected a view, an in_place operand or a concat slice behind the alias of %{result.root.name}, "
                    "got none",
                    result,
                )


def _not_clobbered(function: Function, ties: list[Ties]) -> None:
    """No op writes over a value that is read after it, nor over an operand other than as `in_place` allows."""
    last = {v: -1 for v in function.values()}
    sharers = Counter(param.root for param in function.params)
    for index, op in enumerate(function.ops):
        last.update((operand, index) for operand in op.operands)
        sharers.update(result.root for result in op.results)
    last.update((value, len(function.ops)) for value in function.returns)

    alive: dict[Value, IntervalIndex[Value]] = {}  # Of each root, the values so far that may be read later.

    def begin(value: Value) -> None:
        if sharers[value.root] > 1:
            alive.setdefault(value.root, IntervalIndex()).add(*interval_of(value), value)

    for param in function.params:
        begin(param)
    for index, (op, tie) in enumerate(zip(function.ops, ties)):
        where = Where(function.name, index, op)
        for number, result in enumerate(op.results):
            root = result.root
            if sharers[root] == 1 or (number == 0 and tie.view) or (root is result and op.name == "constant"):
                continue
            if root.role in (Role.INPUT, Role.WEIGHT) or (root.op is not None and root.op.name == "constant"):
                where.fail(f"expected no write to %{root.name}, which is an input, a weight or a constant", result)
            kept = [interval_of(op.operands[k]) for k in tie.slices] if number == 0 else []
            written = without(interval_of(result), kept)
            _check_operands(where, op, tie if number == 0 else Ties(foreign=tie.foreign), result, written)
            for other in op.results:
                if other is not result and other.root is root and _any_overlap(other, written):
                    where.fail(f"expected results on bytes of their own, got %{other.name} on the same", result)
            if root in alive and (needed := _needed(alive[root], written, last, index)) is not None:
                where.fail(
                    f"expected %{needed.name} to be unused after this op, which overwrites its bytes; "
                    f"got a use by {_user(function, last[needed])}",
                    result,
                )
        for result in op.results:
            begin(result)


def _needed(alive: IntervalIndex[Value], written: list[Interval], last: dict[Value, int], index: int) -> Value | None:
    """The first value that has bytes of `written` and is read after op `index`, if there is one. Those that are met and no
    longer read are dropped, so that each is met but few times."""
    found: int | None = None
    for low, high in written:
        for number in alive.near(low, high):
            if number not in alive.items:
                continue
            begin, end, value = alive.items[number]
            if last[value] <= index:
                alive.remove(number)
            elif overlap((begin, end), (low, high)):
                found = number if found is None else min(found, number)
    return None if found is None else alive.items[found][2]


def _any_overlap(value: Value, intervals: list[Interval]) -> bool:
    """Whether a value has bytes of one of several intervals, which are in order and apart."""
    low, high = interval_of(value)
    first = bisect_right(intervals, low, key=lambda interval: interval[1])
    return first < len(intervals) and overlap((low, high), intervals[first])


def _check_operands(where: Where, op: Op, tie: Ties, result: Value, written: list[Interval]) -> None:
    """Operands whose bytes the op overwrites while it reads them."""
    allowed = in_place_rule(op) if tie.in_place is not None else ()
    for number, operand in enumerate(op.operands):
        if operand.root is not result.root or not _any_overlap(operand, written):
            continue
        if tie.foreign and interval_of(operand) == interval_of(result):
            continue
        if number != tie.in_place and not (number in allowed and interval_of(operand) == interval_of(result)):
            where.fail(f"expected operand {number} (%{operand.name}) apart from the result that it is read for", result)


def _user(function: Function, index: int) -> str:
    return "return" if index == len(function.ops) else f"op {index} {function.ops[index].name}"


def without(interval: Interval, kept: list[Interval]) -> list[Interval]:
    """The parts of `interval` outside the `kept` ones."""
    parts: list[Interval] = []
    start = interval[0]
    for low, high in sorted(kept):
        if low > start:
            parts.append((start, low))
        start = max(start, high)
    if start < interval[1]:
        parts.append((start, interval[1]))
    return parts

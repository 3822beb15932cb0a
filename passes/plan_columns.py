# SPDX-License-Identifier: Apache-2.0
"""A planned function as columns of numbers, in which the native check follows its bytes (`cpp/verify/plan_walk.h`).

Shares no code with liveness or the solvers. What is not as in nearly every plan has no columns (`Unusual`): the checks of
`memc.ir.verify` then decide alone, as they do where the native one finds anything wrong, with messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.copies import DONES, STARTS
from memc.ir.core import Function, Op, Role, Value
from memc.ir.op_queries import in_place_operands
from memc.ir.ops.shared.op_def import chosen_kernel, lookup
from memc.ir.verify.shared_bytes import kept_slices, may_share_bytes, offset_in_operand

Column = npt.NDArray[np.int64]

OP, VIEW, START, DONE, CONSTANT = range(5)
"""`WalkKind` of the native library."""

FIXED = {"constant": CONSTANT, **dict.fromkeys(STARTS, START), **dict.fromkeys(DONES, DONE)}
"""Kinds that a name says."""

NONE = -1


class Unusual(Exception):
    """The function needs the other checks."""


class PlanColumns:
    """The columns of a function whose values are all placed in `spaces`, at multiples of `alignment` bytes. Raises Unusual."""

    def __init__(self, function: Function, alignment: int, spaces: Sequence[str]) -> None:
        self.function = function
        self.alignment = alignment
        self.spaces = {name: number for number, name in enumerate(spaces)}
        ops = function.ops
        self.values: list[Value] = list(function.params)
        for op in ops:
            self.values += op.results
            if op.workspace is not None:
                self.values.append(op.workspace)
        self.numbers = {value: number for number, value in enumerate(self.values)}
        if len(self.numbers) != len(self.values):
            raise Unusual
        self.lanes: dict[str, int] = {}
        self.placed = self._placed_params()
        self.returned = {value.root for value in function.returns}
        self.has_copies = False

    def columns(self) -> list[Column]:
        """All of them, in the order in which the library takes them."""
        try:
            ops = self._op_columns()  # First, as these say which functions have copies.
            return [*self._value_columns(), *ops, *self._end_columns()]
        except (KeyError, AttributeError, IndexError, TypeError):  # Of a function that is not even valid.
            raise Unusual from None

    def _placed_params(self) -> dict[Value, str]:
        """Parameters that copies read, and their spaces."""
        found: dict[Value, str] = {}
        for op in self.function.ops:
            if op.name in STARTS and op.operands and op.operands[0].op is None:
                value = op.operands[0]
                if op.name == "prefetch_start" and value.role in (Role.WEIGHT, Role.STATE):
                    found[value] = "host"
                elif op.name == "offload_start" and value.role is Role.STATE:
                    found[value] = "arena"
        return found

    def _value_columns(self) -> list[Column]:
        values, numbers = self.values, self.numbers
        count = len(values)
        aliases = [value.alias for value in values]
        roots = _column([n if alias is None else numbers[alias.root] for n, alias in enumerate(aliases)])
        offsets = _column([0 if alias is None else alias.offset for alias in aliases])
        sizes = _column([value.type.nbytes for value in values])
        places = [value.placement for value in values]
        named = self.spaces
        space = _column([NONE if place is None else named[place.space] for place in places])
        start = _column([0 if place is None else place.offset for place in places])
        fixed = np.zeros(count, np.int64)
        fixed[: len(self.function.params)] = 1
        constant = np.zeros(count, np.int64)
        for op in self.function.ops:
            if op.name == "constant":
                fixed[numbers[op.results[0]]] = constant[numbers[op.results[0]]] = 1
        for root in self.returned:
            fixed[numbers[root]] = 1
        for param in self.function.params:
            if param.role in (Role.INPUT, Role.WEIGHT):
                constant[numbers[param]] = 1
        for param, name in self.placed.items():
            number = numbers[param]
            fixed[number] = constant[number] = 0
            if space[number] != named[name]:
                raise Unusual
        apart = fixed[roots] == 1
        at = np.where(apart, 0, start[roots]) + offsets
        own = (space != NONE) & (roots != np.arange(count))
        wrong = (offsets < 0) | (offsets + sizes > sizes[roots]) | (at < 0)
        wrong |= (sizes > 0) & ((offsets % self.alignment != 0) | (~apart & (at % self.alignment != 0)))
        wrong |= ~apart & ((space[roots] == NONE) | (own & ((space != space[roots]) | (start != at))))
        wrong |= apart & (space[roots] != NONE)
        if wrong.any():
            raise Unusual
        return [np.where(apart, len(named) + roots, space[roots]), at, sizes, np.where(apart, constant[roots], 0)]

    def _op_columns(self) -> list[Column]:
        ops, numbers = self.function.ops, self.numbers
        results = [len(op.results) for op in ops]
        scratch = [op.workspace is not None for op in ops]
        made = [count + more for count, more in zip(results, scratch)]
        first = list(accumulate(made, initial=len(self.function.params)))[:-1]
        workspace = [NONE if op.workspace is None else number + count for op, number, count in zip(ops, first, results)]
        kinds, within, lane, in_place = ([value] * len(ops) for value in (OP, NONE, 0, NONE))
        allowed: list[Sequence[int]] = [()] * len(ops)
        kept: list[Sequence[tuple[int, int]]] = [()] * len(ops)
        known: dict[str, bool] = {}
        for number, op in enumerate(ops):
            name, plan = op.name, op.plan
            if name in FIXED:
                kinds[number] = FIXED[name]
                self._copy(op, number, lane)
            if name not in known:
                known[name] = self._may_share(op)
            if known[name] and may_share_bytes(op):
                self._shared(op, number, kinds, within, kept)
            if plan.in_place is not None:
                in_place[number], allowed[number] = plan.in_place, in_place_operands(op)
                if plan.in_place not in allowed[number]:
                    raise Unusual
            if plan.library_kernel is not None:
                _expect_workspace(op)
            if (
                op.workspace is not None
                and (place := op.workspace.root.placement) is not None
                and place.space != "arena"
            ):
                raise Unusual
        reads = [[numbers[value] for value in op.operands] for op in ops]
        columns = [_column(c) for c in (kinds, first, results, workspace, in_place, within, lane)]
        columns += [*_rows(reads), *_rows(allowed), *_rows([[n for _, n in row] for row in kept])]
        return [*columns, _column([offset for row in kept for offset, _ in row])]

    def _may_share(self, op: Op) -> bool:
        """Whether ops of a name may be views or joins."""
        definition = lookup(op.name)
        if definition is None:
            if op.region is None:  # A foreign op, which has rules of its own.
                raise Unusual
            return False
        return definition.view is not None or definition.slices is not None

    def _copy(self, op: Op, number: int, lane: list[int]) -> None:
        if op.name in STARTS:
            self.has_copies = True
            lane[number] = self.lanes.setdefault(str(op.attrs.get("lane")), len(self.lanes))
        elif op.name == "constant" and (op.results[0].alias is not None or op.results[0].placement is not None):
            raise Unusual

    def _shared(
        self, op: Op, number: int, kinds: list[int], within: list[int], kept: list[Sequence[tuple[int, int]]]
    ) -> None:
        """A view, or a join of operands that lie in it already."""
        offset, result = offset_in_operand(op), op.results[0]
        if offset is not None:
            if result.alias is None:
                raise Unusual
            within[number] = offset
            kinds[number] = max(kinds[number], VIEW)
        elif kinds[number] != OP:
            raise Unusual
        else:
            kept[number] = sorted((at, operand) for operand, at in kept_slices(op).items())

    def _end_columns(self) -> list[Column]:
        """What returns and the next run are to find."""
        function, numbers = self.function, self.numbers
        contents: dict[Value, Value] = {}
        seen: set[Value] = set()
        for value in function.returns:
            root = value.root
            constant = root.op is not None and root.op.name == "constant"
            if root in seen or constant or root.type.nbytes != value.type.nbytes or value.role is not None:
                raise Unusual
            if root.role in (Role.INPUT, Role.WEIGHT):
                raise Unusual
            seen.add(root)
            if root.role is Role.STATE:
                contents[root] = value
        read = {value for op in function.ops for value in op.operands if value.op is None} if self.has_copies else set()
        ends = [(value, value) for value in function.returns]
        ends += [(param, param) for param in self.placed if param not in seen]
        ends += [(p, contents.get(p, p)) for p in function.params if p in read and p.role is not Role.INPUT]
        for param in function.params:
            if param.alias is not None or (param.placement is not None and param not in self.placed):
                raise Unusual
        return [_column([numbers[place] for place, _ in ends]), _column([numbers[what] for _, what in ends])]


def _expect_workspace(op: Op) -> None:
    """Raise Unusual where the op's library kernel asks for more workspace than it has."""
    kernel = chosen_kernel(op)
    if kernel is not None and kernel.workspace is not None:
        least, _ = kernel.workspace(op)
        if (0 if op.workspace is None else op.workspace.type.nbytes) < least:
            raise Unusual


def _column(numbers: Any) -> Column:
    return np.array(numbers, np.int64)


def _rows(table: Sequence[Sequence[int]]) -> list[Column]:
    """Where each row begins and the last ends, and all one after another."""
    first = np.zeros(len(table) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, table), np.int64, len(table)), out=first[1:])
    return [first, np.fromiter(chain.from_iterable(table), np.int64, int(first[-1]))]

# SPDX-License-Identifier: Apache-2.0
"""A function as a problem of recomputation, and a solution as a function again.

Views cost nothing and follow what they look into, so a view's readers read the viewed value, and whoever needs a view of
a recomputed value gets a new view. Constants, parameters and returned values lie outside the arena and always stay.

Aliases that a function has already are facts: a storage that several values share counts once, from the first op that
touches it to the last. An op that writes to one runs once, but for chains of overwrites (`chains.py`), which are recomputed
together and then have a storage of their own; and an op that reads what is overwritten is not recomputed after that. No op
moves then, because the search does not know that an op reads what another has written into a storage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT
from memc.ir.op_queries import assigned_state, has, in_place_operands, slice_offsets, view_offset
from memc.ir.ops.shared.op_def import Trait, lookup
from memc.ir.sizes import align, format_size
from memc.passes.recompute.chains import may_repeat, overwrite_chains
from memc.solvers.recompute import RecomputeProblem


@dataclass
class RecomputeGraph:
    """A function's ops that make bytes, and what each value looks into."""

    function: Function
    units: list[tuple[Op, ...]]
    """The ops of the problem, all but constants and views of whole values: single ones, and chains of overwrites."""
    base: dict[Value, Value]
    """What a value is a view of, in the end, or the root of its alias; itself if of nothing."""
    views: dict[Value, Value]
    """What a view is made of."""
    aliased: bool
    """Whether the function has aliases already; no other ones will be made then."""
    held: frozenset[Value]
    """What ops that decide together read, so that it is never recomputed."""
    problem: RecomputeProblem = field(init=False)
    values: list[Value] = field(init=False)
    """The problem's values, by their numbers."""
    foreign: dict[Value, str] = field(init=False)
    """The values that ops which memc does not know read, each with the name of such an op."""

    @staticmethod
    def of(function: Function, cost: Callable[[Op], int], alignment: int = ALIGNMENT) -> RecomputeGraph:
        """The problem of `function`. `cost` is what one more run of an op costs.

        Without aliases yet, the problem counts on those that `in-place` will make.
        """
        aliased = any(v.alias is not None for v in function.values())
        chains = {chain[0]: chain for chain in overwrite_chains(function)} if aliased else {}
        later = {op for chain in chains.values() for op in chain[1:]}
        base: dict[Value, Value] = {p: p for p in function.params}
        views: dict[Value, Value] = {}
        units = []
        for op in function.ops:
            if not aliased and is_whole_view(op):
                views[op.result] = op.operands[0]
                base[op.result] = base[op.operands[0]]
                continue
            base.update((v, v.root) for v in op.results)
            if op.name != "constant" and op not in later:
                units.append(chains.get(op, (op,)))
        held = frozenset(base[op.operands[0]] for op in function.ops if has(op, Trait.ONCE))
        graph = RecomputeGraph(function, units, base, views, aliased, held)
        graph.problem = graph._problem(cost, alignment)
        graph.foreign = {
            base[v]: op.name
            for unit in units
            for op in unit
            if op.region is None and lookup(op.name) is None
            for v in op.operands
        }
        return graph

    def _problem(self, cost: Callable[[Op], int], alignment: int) -> RecomputeProblem:
        outside = {self.base[v] for v in self.function.returns}
        outside.update(op.results[0] for op in self.function.ops if assigned_state(op) is not None)
        number: dict[Value, int] = {}
        makes: list[list[int]] = []
        reads: list[list[int]] = []
        for unit in self.units:
            touched = dict.fromkeys(self.base[v] for op in unit for v in (*op.operands, *op.results))
            reads.append([number[v] for v in touched if v in number])
            new = [
                v for v in dict.fromkeys(self.base[v] for v in _results(unit)) if v not in number and v.op is not None
            ]
            makes.append(list(range(len(number), len(number) + len(new))))
            number.update(zip(new, makes[-1]))
        self.values = list(number)
        scratch = [max(0 if op.workspace is None else op.workspace.type.nbytes for op in unit) for unit in self.units]
        over = [self._may_take_over(unit[0]) for unit in self.units]
        parts = [self._parts(unit[0], alignment) for unit in self.units]
        writers = self._writers()
        return RecomputeProblem(
            sizes=[0 if v in outside else align(v.type.nbytes, alignment) for v in number],
            costs=[sum(map(cost, unit)) for unit in self.units],
            once=[not self._may_repeat(unit, writers) for unit in self.units],
            scratch=[align(nbytes, alignment) for nbytes in scratch],
            reads=reads,
            makes=makes,
            over=[[number[v] for v in values if v in number and v not in outside] for values in over],
            parts=[[number[v] for v in values if v in number and v not in outside] for values in parts],
            until=[self._until(index, unit, writers) for index, unit in enumerate(self.units)],
            in_order=self.aliased,
        )

    def _writers(self) -> dict[Value, list[int]]:
        """The units that write to states, and to storages that others write to as well."""
        writers: dict[Value, list[int]] = {}
        for index, unit in enumerate(self.units):
            found = [state[1] for op in unit if (state := assigned_state(op)) is not None]
            for root in dict.fromkeys((*found, *(v.root for v in _results(unit)))):
                writers.setdefault(root, []).append(index)
        return {root: units for root, units in writers.items() if root.op is None or len(units) > 1}

    def _may_repeat(self, unit: Sequence[Op], writers: Mapping[Value, Sequence[int]]) -> bool:
        if not self.held.isdisjoint(self.base[v] for v in _results(unit)):
            return False
        return all(map(may_repeat, unit)) and not any(v.root in writers for v in _results(unit))

    def _until(self, index: int, unit: Sequence[Op], writers: Mapping[Value, Sequence[int]]) -> list[int]:
        """The first unit after this one that overwrites a storage that this one reads, for each such storage."""
        read = dict.fromkeys(self.base[v] for op in unit for v in op.operands)
        rows = (writers[root] for root in read if root in writers)
        return list(dict.fromkeys(row[at] for row in rows if (at := bisect_right(row, index)) < len(row)))

    def _may_take_over(self, op: Op) -> list[Value]:
        """Values whose bytes result 0 of `op` may take over, if they are not needed any more."""
        if self.aliased:
            return []
        allowed = in_place_operands(op)
        found = []
        for k in allowed:
            value = self.base[op.operands[k]]
            apart = all(self.base[v] is not value or j in allowed for j, v in enumerate(op.operands))
            if apart and value.type.nbytes == op.results[0].type.nbytes:
                found.append(value)
        return list(dict.fromkeys(found))

    def _parts(self, op: Op, alignment: int) -> list[Value]:
        """Values that result 0 of `op` holds side by side, each in bytes of its own, if it is where they die."""
        if self.aliased:
            return []
        offsets = slice_offsets(op)
        bases = [self.base[v] for v in op.operands]
        return [
            base
            for k, base in enumerate(bases)
            if (offset := offsets[k]) is not None and offset % alignment == 0 and bases.count(base) == 1
        ]

    def movable(self, least: int) -> list[bool]:
        """Of each value, whether it may be copied out of the arena while it is not used."""
        return [reason is None for reason in self.immovable(least)]

    def immovable(self, least: int) -> list[str | None]:
        """Of each value, why it may not be copied out of the arena while it is not used, in words; None if it may: one of at
        least so many bytes that nothing else shares and no foreign op, which might write to it, reads."""

        def reason(value: Value, size: int) -> str | None:
            if size == 0 and value.type.nbytes:
                updates = value.op is not None and assigned_state(value.op) is not None
                return "is the new content of a state" if updates else "is a result of the function"
            if self.aliased:
                return "may share bytes with others, since the function had aliases already"
            if value in self.foreign:
                return f'is read by "{self.foreign[value]}", which memc does not know and which may write to it'
            return None if size >= max(1, least) else f"is below the least copy of {format_size(least)}"

        return list(map(reason, self.values, self.problem.sizes))

    def reasons(self, least: int) -> dict[str, str]:
        """Why values may not be copied, by their names, views included. As the function was when the problem was made of it."""
        found = dict(zip(self.values, self.immovable(least)))
        return {value.name: why for value, base in self.base.items() if (why := found.get(base)) is not None}


def is_whole_view(op: Op) -> bool:
    """Whether an op's result is operand 0's bytes, all of them."""
    return view_offset(op) == 0 and op.results[0].type.nbytes == op.operands[0].type.nbytes


def _results(unit: Sequence[Op]) -> list[Value]:
    return [v for op in unit for v in op.results]

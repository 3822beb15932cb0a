# SPDX-License-Identifier: Apache-2.0
"""Analysis of which results take over, look into, or are written straight into other storages. Nothing is changed.

Ops are met in execution order. Result 0 of each may become

    a view        of operand 0, where `OpDef.view` says that the result is a contiguous part of it;
    in place      over an operand that `OpDef.in_place` names, if nobody reads the bytes any more;
    a concat      whose operands' storages, so far separate, become slices of the result (`OpDef.slices`).

A view or an in-place result that covers its whole storage never costs memory. One that covers a part keeps the rest
alive with it, and a concat's result lives from its first slice on: those are taken only where the live sets that they
reach do not grow (`_cheaper`), and taken back while that lowers the peak (`plan_aliases`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memc.ir.copies import is_copy, is_host_value
from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT, is_fixed, peak
from memc.ir.sizes import align
from memc.ir.snapshot import is_unplaced
from memc.ir.span_index import SpanIndex
from memc.passes.placement.alias_rules import OpRules, Rules

Decision = tuple[Op, int]
"""An op, and the operand whose storage its result shares."""

MAX_REPLANS = 12


@dataclass(eq=False)
class Storage:
    """Bytes that several values use, one after another or together."""

    root: Value
    size: int
    """Bytes, unrounded."""
    lower: int
    upper: int
    """Half-open interval of op indices in which any member is written or read."""
    fixed: bool = False
    """A parameter's or constant's: never written."""
    output: bool = False
    """Holds exactly a returned value, or lies in another space: it is outside the arena."""
    copied: bool = False
    """A copy between spaces writes to it: it is never what the caller is given."""
    members: list[Value] = field(default_factory=list)
    pending: SpanIndex[Value] = field(default_factory=SpanIndex)
    """Members that may still be read, by their bytes; those that are done are dropped as they are met."""


@dataclass
class AliasPlan:
    """What to alias, and what comes of it."""

    storage: dict[Value, Storage]
    offset: dict[Value, int]
    """Bytes from the start of the value's storage."""
    in_place: dict[Op, int]
    """Operand that the op's result 0 overwrites."""
    live: npt.NDArray[np.int64]
    """Rounded bytes live in the arena during each op."""
    risky: list[tuple[Decision, int, int]]
    """Decisions that lengthened a lifetime, each with the interval in which it added bytes."""

    @property
    def peak(self) -> int:
        """Largest live set, in bytes."""
        return int(self.live.max(initial=0))


def plan_aliases(
    function: Function, alignment: int = ALIGNMENT, refine: bool = True, rules: Rules | None = None
) -> AliasPlan:
    """The better of a careful and an eager plan, without the risky decisions that turn out to raise its peak.

    `function` must not hold aliases yet. With `refine` false the last step is left out, which is quicker.
    """
    rules = {} if rules is None else rules
    careful = _Planner(function, alignment, False, (), rules)
    best = careful.run()
    if careful.declined:
        best = min(best, _Planner(function, alignment, True, (), rules).run(), key=lambda plan: plan.peak)
    if not refine or not best.risky:
        return best
    refused: set[Decision] = set()
    for _ in range(MAX_REPLANS):
        top = int(best.live.argmax())
        blamed = [decision for decision, lower, upper in best.risky if lower <= top < upper]
        if not blamed:
            break
        attempt = _Planner(function, alignment, True, refused | set(blamed), rules).run()
        if attempt.peak >= best.peak:
            break
        best, refused = attempt, refused | set(blamed)
    return best


def planned_peak(function: Function, alignment: int = ALIGNMENT, refine: bool = False) -> int:
    """The lower bound, in bytes, that `function` will have once aliases are made (or has, if they are).

    `refine` is `plan_aliases`'s: with it the bound is exact, without it quicker.
    """
    if not is_unplaced(function):
        return peak(function, alignment)
    return plan_aliases(function, alignment, refine).peak


class _Planner:
    def __init__(
        self, function: Function, alignment: int, eager: bool, refused: Collection[Decision], rules: Rules
    ) -> None:
        self.function = function
        self.rules = rules
        self.alignment = alignment
        self.eager = eager
        self.refused = refused
        self.declined = False
        """Whether something legal was left out because it seemed to cost memory."""
        self.returned = set(function.returns)
        self.size: dict[Value, int] = {}
        """Unrounded bytes of each value."""
        end = len(function.ops)
        self.last: dict[Value, int] = {}
        """Index of the last op that reads or defines a value; beyond all ops for a returned one."""
        self.assigned: dict[Value, int] = {}
        """Index of the op that gives a state its new content."""
        self.plan = AliasPlan({}, {}, {}, np.zeros(0, np.int64), [])
        for index, op in enumerate(function.ops):
            if op not in rules:
                rules[op] = OpRules.of(op)
            for value in (*op.operands, *op.results):
                self.last[value] = index
            if (found := rules[op].assigned) is not None:
                self.assigned[found[1]] = index
        for value in self.returned:
            self.last[value] = end
        change = [0] * (end + 1)
        for param in function.params:
            self._own(param, 0, change)
        for index, op in enumerate(function.ops):
            for value in op.results:
                self._own(value, index, change)
            if op.workspace is not None:
                size = align(op.workspace.type.nbytes, alignment)
                change[index] += size
                change[index + 1] -= size
        self.plan.live = np.cumsum(np.array(change[:end], np.int64))

    def _own(self, value: Value, index: int, change: list[int]) -> None:
        """Give the value a storage of its own; `change` takes by how much it moves the live bytes at each op."""
        upper = min(self.last.get(value, index) + 1, len(self.function.ops))
        self.size[value] = size = value.type.nbytes
        outside = value in self.returned or is_host_value(value)
        copied = value.op is not None and is_copy(value.op)
        storage = Storage(value, size, index, upper, is_fixed(value), outside, copied, [value])
        storage.pending.add(0, size, value)
        self.plan.storage[value] = storage
        self.plan.offset[value] = 0
        if not storage.fixed and not storage.output:
            change[index] += align(size, self.alignment)
            change[upper] -= align(size, self.alignment)

    def _count(self, storage: Storage, sign: int) -> None:
        if not storage.fixed and not storage.output:
            self.plan.live[storage.lower : storage.upper] += sign * align(storage.size, self.alignment)

    def run(self) -> AliasPlan:
        for index, op in enumerate(self.function.ops):
            if not op.results or self.size[op.results[0]] == 0 or op.name == "constant":
                continue
            if self._try_assign(op):
                continue
            if not self._try_view(index, op) and not self._try_in_place(index, op):
                self._try_slices(index, op)
        return self.plan

    def _try_assign(self, op: Op) -> bool:
        """The new content of a state goes over the old one, which takes no bytes of the arena."""
        found = self.rules[op].assigned
        if found is None:
            return False
        number, _ = found
        storage, own = self._storage(op, number), self.plan.storage[op.results[0]]
        self.plan.in_place[op] = number
        self._count(own, -1)
        self.plan.storage[op.results[0]] = storage
        storage.members.append(op.results[0])
        return True

    def _try_view(self, index: int, op: Op) -> bool:
        within = self.rules[op].view
        if within is None or (op, 0) in self.refused:
            return False
        changed = self.assigned.get(self._storage(op, 0).root)
        if changed is not None and self.last[op.results[0]] >= changed:
            return False  # Read after a state's bytes have changed.
        return self._join(index, op, 0, self.plan.offset[op.operands[0]] + within)

    def _try_in_place(self, index: int, op: Op) -> bool:
        allowed = self.rules[op].in_place
        if not allowed:
            return False
        legal = [k for k in allowed if (op, k) not in self.refused and self._may_overwrite(index, op, k, allowed)]
        # Whole storages first, and of those the one that has been live for longest: it may become an output's.
        legal.sort(key=lambda k: (self._storage(op, k).size != self.size[op.results[0]], self._storage(op, k).lower))
        for k in legal:
            if self._join(index, op, k, self.plan.offset[op.operands[k]]):
                self.plan.in_place[op] = k
                return True
        return False

    def _may_overwrite(self, index: int, op: Op, k: int, allowed: Collection[int]) -> bool:
        """Whether nobody needs the bytes of operand `k` after the op, nor reads them in it at another position."""
        target = op.operands[k]
        storage = self._storage(op, k)
        if storage.fixed or self.size[target] != self.size[op.results[0]]:
            return False
        if self._is_needed(storage, target, index):
            return False
        return all(
            self.plan.storage[v] is not storage or (v is target and j in allowed) or not self._overlap(v, target)
            for j, v in enumerate(op.operands)
        )

    def _is_needed(self, storage: Storage, target: Value, index: int) -> bool:
        """Whether bytes of `target` are read after op `index`, by way of any member of its storage."""
        low = self.plan.offset[target]
        high = low + self.size[target]
        for number in storage.pending.near(low, high):
            begin, end, member = storage.pending.items[number]
            if self.last[member] < index:
                storage.pending.remove(number)
            elif self.last[member] > index and max(begin, low) < min(end, high):
                return True
        return False

    def _overlap(self, a: Value, b: Value) -> bool:
        """Whether two members of one storage share bytes."""
        offset = self.plan.offset
        return max(offset[a], offset[b]) < min(offset[a] + self.size[a], offset[b] + self.size[b])

    def _join(self, index: int, op: Op, k: int, offset: int) -> bool:
        """Put result 0 into operand `k`'s storage at byte `offset`, if that is legal and does not cost memory."""
        result, storage = op.results[0], self._storage(op, k)
        whole = offset == 0 and self.size[result] == storage.size
        if offset % self.alignment:
            return False
        if result in self.returned and (storage.fixed or storage.output or storage.copied or not whole):
            return False
        own = self.plan.storage[result]
        upper = max(storage.upper, own.upper)
        if not whole and upper > storage.upper and not storage.fixed and not storage.output:
            if not self.eager and not self._cheaper([own, storage], storage.lower, upper, storage.size):
                self.declined = True
                return False
            self.plan.risky.append(((op, k), storage.upper, upper))
        self._merge(storage, [own], offset, storage.lower, upper)
        return True

    def _try_slices(self, index: int, op: Op) -> None:
        if not self.rules[op].slices:
            return
        result = op.results[0]
        target = self.plan.storage[result]
        chosen: list[tuple[int, int, Storage]] = []
        for k, offset in enumerate(self.rules[op].slices):
            value, storage = op.operands[k], self._storage(op, k)
            movable = not (storage.fixed or storage.output) and storage.size == self.size[value] > 0
            movable = movable and not (storage.copied and target.output)
            if offset is None or offset % self.alignment or not movable or (op, k) in self.refused:
                continue
            if op.operands.count(value) == 1 and all(storage is not other for _, _, other in chosen):
                chosen.append((k, offset, storage))
        # The slices written last cost least: each earlier one keeps the whole result alive from then on.
        chosen.sort(key=lambda item: -item[2].lower)
        if not target.output and not self.eager:
            best = self._best_prefix(target, [storage for _, _, storage in chosen])
            self.declined |= best < len(chosen)
            chosen = chosen[:best]
        for k, offset, storage in chosen:
            lower, upper = min(storage.lower, target.lower), max(storage.upper, target.upper)
            if not target.output and lower < index:
                self.plan.risky.append(((op, k), lower, index))
            self._merge(target, [storage], offset, lower, upper)

    def _best_prefix(self, target: Storage, parts: list[Storage]) -> int:
        """How many of `parts` to make slices of `target`, for the lowest live sets."""
        if not parts:
            return 0
        begin = min(part.lower for part in parts)
        end = max(target.upper, *(part.upper for part in parts))
        window = self.plan.live[begin:end].copy()
        size = align(target.size, self.alignment)
        window[target.lower - begin : target.upper - begin] -= size
        best, count = int(self.plan.live[begin:end].max()), 0
        lower, upper = target.lower, target.upper
        for number, part in enumerate(parts, 1):
            window[part.lower - begin : part.upper - begin] -= align(part.size, self.alignment)
            lower, upper = min(lower, part.lower), max(upper, part.upper)
            with_target = window.copy()
            with_target[lower - begin : upper - begin] += size
            reached = int(with_target.max())
            if reached <= best:
                best, count = reached, number
        return count

    def _cheaper(self, parts: list[Storage], lower: int, upper: int, size: int) -> bool:
        """Whether one storage of `size` in [lower, upper) instead of `parts` reaches no larger live set there."""
        before = self.plan.live[lower:upper]
        after = before.copy()
        for part in parts:
            if not part.output:
                after[part.lower - lower : part.upper - lower] -= align(part.size, self.alignment)
        after += align(size, self.alignment)
        return int(after.max()) <= int(before.max())

    def _merge(self, into: Storage, parts: list[Storage], offset: int, lower: int, upper: int) -> None:
        """Move the members of `parts` into `into`, `offset` bytes from its start; it then lives in [lower, upper)."""
        for storage in (into, *parts):
            self._count(storage, -1)
        for part in parts:
            into.output = into.output or part.output
            into.copied = into.copied or part.copied
            for member in part.members:
                self.plan.storage[member] = into
                self.plan.offset[member] += offset
            into.members.extend(part.members)
            for low, high, member in part.pending.items.values():
                into.pending.add(low + offset, high + offset, member)
        into.lower, into.upper = lower, upper
        self._count(into, 1)

    def _storage(self, op: Op, k: int) -> Storage:
        return self.plan.storage[op.operands[k]]


def aliased(plan: AliasPlan) -> Iterator[tuple[Value, Value, int]]:
    """(value, root, byte offset) for every value that is not its own root."""
    for value, storage in plan.storage.items():
        if storage.root is not value:
            yield value, storage.root, plan.offset[value]

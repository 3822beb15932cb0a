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

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memc.ir.copies import arena_states, is_brought_back, is_copy, is_host_value, is_written_back
from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT, is_fixed, peak
from memc.ir.sizes import align
from memc.ir.snapshot import is_unplaced
from memc.passes.placement.op_aliasing_cache import KnownAliasing, OpAliasing
from memc.passes.placement.storages import LiveBytes, Storage

Decision = tuple[Op, int]
"""An op, and the operand whose storage its result shares."""

MAX_REPLANS = 12


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
    function: Function, alignment: int = ALIGNMENT, refine: bool = True, rules: KnownAliasing | None = None
) -> AliasPlan:
    """The better of a careful and an eager plan, without the risky decisions that turn out to raise its peak.

    `function` must not hold aliases yet, but those of `is_written_back` and `is_brought_back`. With `refine` false the last step is left out, which is quicker.
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
        self, function: Function, alignment: int, eager: bool, refused: Collection[Decision], rules: KnownAliasing
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
        last = self.last
        for index, op in enumerate(function.ops):
            if op not in rules:
                rules[op] = OpAliasing.of(op)
            for value in op.operands:
                last[value] = index
            for value in op.results:
                last[value] = index
            if (found := rules[op].assigned) is not None:
                self.assigned[found[1]] = index
        for value in self.returned:
            last[value] = end
        change = [0] * (end + 1)
        for param in function.params:
            self._own(param, 0, change)
        for state in arena_states(function):
            size = align(state.type.nbytes, alignment)
            change[0] += size
            change[last[state] + 1] -= size
        for index, op in enumerate(function.ops):
            for value in op.results:
                self._own(value, index, change)
                if op.name == "prefetch_start" and is_brought_back(value):
                    change[index] += align(value.type.nbytes, alignment)
                    change[end] -= align(value.type.nbytes, alignment)
            if op.workspace is not None:
                size = align(op.workspace.type.nbytes, alignment)
                change[index] += size
                change[index + 1] -= size
        self.live = LiveBytes(np.cumsum(np.array(change[:end], np.int64)), alignment)

    def _own(self, value: Value, index: int, change: list[int]) -> None:
        """Give the value a storage of its own; `change` takes by how much it moves the live bytes at each op."""
        upper = min(self.last.get(value, index) + 1, len(self.function.ops))
        self.size[value] = size = value.type.nbytes
        fixed, output = is_fixed(value), value in self.returned or is_host_value(value) or is_brought_back(value)
        copied = value.op is not None and is_copy(value.op)
        self.plan.storage[value] = Storage(value, size, index, upper, fixed, output, copied, [value])
        self.plan.offset[value] = 0
        if not fixed and not output:
            size = align(size, self.alignment)
            change[index] += size
            change[upper] -= size

    def run(self) -> AliasPlan:
        for index, op in enumerate(self.function.ops):
            if not op.results or self.size[op.results[0]] == 0 or op.name == "constant":
                continue
            if is_written_back(op.results[0]) or is_brought_back(op.results[0]):
                self._lies_in_state(op.results[0])
                continue
            rules = self.rules[op]
            if rules.assigned is not None:
                self._assign(op, rules.assigned[0])
                continue
            if rules.view is not None and self._try_view(index, op, rules.view):
                continue
            if rules.in_place and self._try_in_place(index, op, rules.in_place):
                continue
            if rules.slices:
                self._try_slices(index, op, rules.slices)
        self.plan.live = self.live.now()
        return self.plan

    def _assign(self, op: Op, number: int) -> None:
        """The new content of a state goes over the old one, operand `number`, which takes no bytes of the arena."""
        storage, own = self._storage(op, number), self.plan.storage[op.results[0]]
        self.plan.in_place[op] = number
        self.live.take(own)
        self.plan.storage[op.results[0]] = storage
        storage.members.append(op.results[0])

    def _lies_in_state(self, value: Value) -> None:
        """A copy has its place: in a state."""
        self.plan.storage[value] = storage = self.plan.storage[value.root]
        storage.members.append(value)

    def _try_view(self, index: int, op: Op, within: int) -> bool:
        if (op, 0) in self.refused:
            return False
        changed = self.assigned.get(self._storage(op, 0).root)
        if changed is not None and self.last[op.results[0]] >= changed:
            return False  # Read after a state's bytes have changed.
        return self._join(index, op, 0, self.plan.offset[op.operands[0]] + within)

    def _try_in_place(self, index: int, op: Op, allowed: Collection[int]) -> bool:
        legal = [k for k in allowed if (op, k) not in self.refused and self._may_overwrite(index, op, k, allowed)]
        if len(legal) > 1:  # Whole storages first, and of those the one live for longest: it may become an output's.
            size = self.size[op.results[0]]
            legal.sort(key=lambda k: (self._storage(op, k).size != size, self._storage(op, k).lower))
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
        for j, v in enumerate(op.operands):
            if self.plan.storage[v] is storage and not (v is target and j in allowed) and self._overlap(v, target):
                return False
        return True

    def _is_needed(self, storage: Storage, target: Value, index: int) -> bool:
        """Whether bytes of `target` are read after op `index`, by way of any member of its storage."""
        pending = storage.pending
        if pending is None:
            return self.last[target] > index
        low = self.plan.offset[target]
        high = low + self.size[target]
        for number in pending.near(low, high):
            begin, end, member = pending.items[number]
            if self.last[member] < index:
                pending.remove(number)
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

    def _try_slices(self, index: int, op: Op, slices: Sequence[int | None]) -> None:
        result = op.results[0]
        target = self.plan.storage[result]
        chosen: list[tuple[int, int, Storage]] = []
        taken: set[Storage] = set()
        times = Counter(op.operands)
        for k, offset in enumerate(slices):
            value, storage = op.operands[k], self._storage(op, k)
            movable = not (storage.fixed or storage.output) and storage.size == self.size[value] > 0
            movable = movable and not (storage.copied and target.output)
            if offset is None or offset % self.alignment or not movable or (op, k) in self.refused:
                continue
            if times[value] == 1 and storage not in taken:
                taken.add(storage)
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
        live = self.live.now()
        window = live[begin:end].copy()
        size = align(target.size, self.alignment)
        window[target.lower - begin : target.upper - begin] -= size
        best, count = int(live[begin:end].max()), 0
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
        before = self.live.now()[lower:upper]
        after = before.copy()
        for part in parts:
            if not part.output:
                after[part.lower - lower : part.upper - lower] -= align(part.size, self.alignment)
        after += align(size, self.alignment)
        return int(after.max()) <= int(before.max())

    def _merge(self, into: Storage, parts: list[Storage], offset: int, lower: int, upper: int) -> None:
        """Move the members of `parts` into `into`, `offset` bytes from its start; it then lives in [lower, upper)."""
        for storage in (into, *parts):
            self.live.take(storage)
        for part in parts:
            into.output = into.output or part.output
            into.copied = into.copied or part.copied
            for member in part.members:
                self.plan.storage[member] = into
                self.plan.offset[member] += offset
            into.members.extend(part.members)
            if part.pending is None:
                into.indexed().add(offset, offset + part.size, part.root)
                continue
            for low, high, member in part.pending.items.values():
                into.indexed().add(low + offset, high + offset, member)
        into.lower, into.upper = lower, upper
        self.live.add(into)

    def _storage(self, op: Op, k: int) -> Storage:
        return self.plan.storage[op.operands[k]]


def aliased(plan: AliasPlan) -> Iterator[tuple[Value, Value, int]]:
    """(value, root, byte offset) for every value that is not its own root."""
    for value, storage in plan.storage.items():
        if storage.root is not value:
            yield value, storage.root, plan.offset[value]

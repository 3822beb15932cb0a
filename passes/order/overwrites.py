# SPDX-License-Identifier: Apache-2.0
"""Overwrites that another order would allow.

In the order at hand, a result may be unable to take over an operand's bytes only because somebody reads those later. If
the readers do not depend on the op they can go first. Here as many such overwrites as possible are settled, one after
another in the order at hand, each as one storage less and as dependencies on the readers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memc.ir.core import Function, Op, Value
from memc.ir.liveness import covers_root, output_roots
from memc.ir.op_queries import in_place_operands
from memc.passes.order.problem import ordered_ops, storages
from memc.solvers.order import OrderProblem

VISITS = 100
"""Ops looked at for cycles, for each op of the function, at most; later overwrites are left alone."""


@dataclass(frozen=True)
class Guess:
    """A problem whose ops are not numbered as they run now."""

    problem: OrderProblem
    numbering: Sequence[int]
    """Which of `ordered_ops` each op of the problem is."""


class _Overwrites:
    """Storages that are joined and dependencies that are added, with what is needed to see cycles."""

    def __init__(self, ops: Sequence[Op], after: Sequence[Sequence[int]]) -> None:
        self.after = [dict.fromkeys(others) for others in after]
        self.then: list[list[int]] = [[] for _ in ops]
        for index, others in enumerate(after):
            for other in others:
                self.then[other].append(index)
        self.users: dict[Value, dict[int, None]] = {}
        """Ops that read or write the storage of a root since it was last overwritten."""
        for index, op in enumerate(ops):
            for value in (*op.operands, *op.results):
                self.users.setdefault(value.root, {})[index] = None
        self.joined: dict[Value, Value] = {}
        """The root whose storage a root's has become."""
        self.visits = VISITS * len(ops)

    def find(self, root: Value) -> Value:
        while root in self.joined:
            root = self.joined[root]
        return root

    def try_join(self, index: int, operand: Value, result: Value) -> bool:
        """Let op `index` write `result` over `operand`, if what uses the bytes can go first."""
        old = self.find(operand.root)
        users = [user for user in self.users[old] if user != index]
        if old is self.find(result.root) or self._reaches(index, set(users)):
            return False
        for user in users:
            if user not in self.after[index]:
                self.after[index][user] = None
                self.then[user].append(index)
        self.joined[old] = result.root
        return True

    def _reaches(self, start: int, ends: set[int]) -> bool:
        """Whether one of `ends` depends on `start`, or might: the search is over."""
        seen, stack = {start}, [start]
        while stack:
            self.visits -= 1
            if self.visits < 0:
                return True
            for index in self.then[stack.pop()]:
                if index in ends:
                    return True
                if index not in seen:
                    seen.add(index)
                    stack.append(index)
        return False


def with_overwrites(function: Function, problem: OrderProblem) -> Guess:
    """`problem`, that of `function`, with all overwrites that some order allows besides those it has as aliases."""
    ops = ordered_ops(function.ops)
    overwrites = _Overwrites(ops, problem.after)
    outside = output_roots(function)
    first = {value.root: index for index, op in reversed(list(enumerate(ops))) for value in op.results}
    for index, op in enumerate(ops):
        if not op.results or first[op.results[0].root] != index or op.results[0].alias is not None:
            continue
        for k in in_place_operands(op):
            operand = op.operands[k]
            fits = operand.root in first and operand.root not in outside and covers_root(operand)
            fits = fits and operand.type.nbytes == op.results[0].type.nbytes and _apart(op, k)
            if fits and overwrites.try_join(index, operand, op.results[0]):
                break
    return _numbered(_joined_problem(function, problem, overwrites))


def _apart(op: Op, k: int) -> bool:
    """Whether no other operand of `op` lies in the storage of operand `k`."""
    return all(j == k or value.root is not op.operands[k].root for j, value in enumerate(op.operands))


def _joined_problem(function: Function, problem: OrderProblem, overwrites: _Overwrites) -> OrderProblem:
    """`problem` with the storages joined. One that is joined to a returned value's is outside the arena."""
    roots = [life.root for life in storages(function)]
    number = {root: storage for storage, root in enumerate(roots)}
    into = [number.get(overwrites.find(root)) for root in roots]
    touches = [list(dict.fromkeys(s for s in map(into.__getitem__, row) if s is not None)) for row in problem.touches]
    return replace(problem, touches=touches, after=[list(others) for others in overwrites.after])


def _numbered(problem: OrderProblem) -> Guess:
    """`problem` with its ops renumbered as its dependencies want it, otherwise in the sequence that they had."""
    waiting = [len(others) for others in problem.after]
    then: list[list[int]] = [[] for _ in waiting]
    for index, others in enumerate(problem.after):
        for other in others:
            then[other].append(index)
    ready = [index for index, count in enumerate(waiting) if count == 0]
    numbering: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        numbering.append(index)
        for other in then[index]:
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, other)
    new = {index: number for number, index in enumerate(numbering)}
    renumbered = replace(
        problem,
        touches=[problem.touches[index] for index in numbering],
        after=[[new[other] for other in problem.after[index]] for index in numbering],
        scratch=[problem.scratch[index] for index in numbering],
    )
    return Guess(renumbered, numbering)

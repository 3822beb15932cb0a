# SPDX-License-Identifier: Apache-2.0
"""What precedence alone says about operator orders: ops that cost nothing, pairs that a bound decides, a lower bound.

A storage is live from the first of its `starts` to the last of its `ends`. At first these are the ops that touch it and
have no other toucher before (after) them; leaving ops out moves the rest of the bounds to the ops around them.

All of it is cubic in the ops or worse, so callers pass a `Look`, which is called every few milliseconds of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from ..order_problem import OrderProblem

Relation = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]

Look = Callable[[], None]
"""Looks at the clock, and raises `Expired` if time is up."""

BLOCK = 10**8
"""Multiplications between two looks at the clock: some 5 to 10 ms."""


class Expired(Exception):
    """Time was up before an answer was found."""


def never() -> None:
    """A look at no clock."""


@dataclass
class Reduced:
    """An order problem without the ops whose best place follows from the others'. Ops and storages are renumbered."""

    ops: list[int]
    """Of each op left: its number in the problem."""
    sizes: npt.NDArray[np.float64]
    """Bytes of each storage in `unit`s; exact, the sum is below 2**53."""
    unit: int
    starts: Relation
    """[op, storage]: the op may be the first to touch it."""
    ends: Relation
    """[op, storage]: the op may be the last to touch it."""
    kept: Relation
    """[storage]"""
    before: Relation
    """[u, v]: u runs before v in every order. Transitive."""
    left_out: list[tuple[int, bool, list[int]]] = field(default_factory=list)
    """(op, early, neighbours): it runs right after the last (early) or right before the first of its neighbours.
    Numbers are the problem's. In the order of leaving."""

    def complete(self, order: Sequence[int]) -> list[int]:
        """The problem's order for an order of the ops left."""
        whole = [self.ops[op] for op in order]
        for op, early, neighbours in reversed(self.left_out):
            near = set(neighbours)
            at = [place for place, other in enumerate(whole) if other in near]
            whole.insert((at[-1] + 1 if early else at[0]) if at else 0, op)
        return whole


def bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def product(a: Matrix, b: Matrix, look: Look) -> Matrix:
    """a @ b, in blocks of rows with a look at the clock after each."""
    rows = max(1, BLOCK // max(b.size, 1))
    result = np.empty((a.shape[0], b.shape[1]), np.result_type(a, b))
    for begin in range(0, a.shape[0], rows):
        np.matmul(a[begin : begin + rows], b, out=result[begin : begin + rows])
        look()
    return result


def closure(problem: OrderProblem) -> tuple[list[int], list[int]]:
    """Of each op: the ops before it and those after it in every order, as bit masks."""
    ops = len(problem.touches)
    above, below = [0] * ops, [0] * ops
    for op, after in enumerate(problem.after):
        for other in after:
            above[op] |= above[other] | 1 << other
    for op in reversed(range(ops)):
        for other in problem.after[op]:
            below[other] |= below[op] | 1 << op
    return above, below


def reduce_problem(problem: OrderProblem, look: Look = never) -> Reduced:
    """The problem without ops that cost nothing where they run best.

    An op that allocates nothing may run as soon as the last op before it has run: what is live then was live during
    that op, and what it frees is freed the sooner. Likewise backwards for an op that frees nothing. Both only shrink
    the set of storages live together, so addresses are none the worse either. Raises ValueError if the sizes sum to
    2**53 or more units of their greatest common divisor, Expired if time is up.
    """
    ops = len(problem.touches)
    scratch = {op: bytes_ for op, bytes_ in enumerate(problem.scratch) if bytes_}
    sizes = [*problem.sizes, *scratch.values()]
    unit = gcd(*sizes) or 1
    if sum(sizes) // unit >= 2**53:
        raise ValueError(
            f"ilp: sizes sum to {sum(sizes) // unit} units of {unit} bytes, beyond 2^53; use another solver"
        )
    touchers = [0] * len(sizes)
    for op, touched in enumerate(problem.touches):
        for storage in touched:
            touchers[storage] |= 1 << op
    for extra, op in enumerate(scratch):
        touchers[len(problem.sizes) + extra] |= 1 << op

    look()
    above, below = closure(problem)
    look()
    starts = [_without(touching, above) for touching in touchers]
    ends = [0 if s in problem.kept else _without(touching, below) for s, touching in enumerate(touchers)]
    left = (1 << ops) - 1
    left_out: list[tuple[int, bool, list[int]]] = []
    changed = True
    while changed:
        changed = False
        for op in bits(left):
            look()
            bit = 1 << op
            early = not any(mask & bit for mask in starts)
            late = not early and bool(below[op] & left) and not any(mask & bit for mask in ends)
            if not early and not late:
                continue
            left &= ~bit
            near = _without((above if early else below)[op] & left, below if early else above)
            left_out.append((op, early, list(bits(near))))
            masks, reach = (ends, below) if early else (starts, above)
            for storage, mask in enumerate(masks):
                if mask & bit:
                    masks[storage] = _without(mask & ~bit | near, reach)
            changed = True
    chosen = list(bits(left))
    return Reduced(
        chosen,
        np.array([size // unit for size in sizes], np.float64),
        unit,
        _matrix(starts, chosen),
        _matrix(ends, chosen),
        np.array([s in problem.kept for s in range(len(sizes))], np.bool_),
        _matrix(above, chosen)[:, chosen] if chosen else np.zeros((0, 0), np.bool_),
        left_out,
    )


def _without(mask: int, reach: list[int]) -> int:
    """The ops of `mask` that have none of `mask` in their reach."""
    return sum(1 << op for op in bits(mask) if not reach[op] & mask)


def _matrix(masks: list[int], rows: list[int]) -> Relation:
    """[op in rows, mask]"""
    result = np.zeros((len(rows), len(masks)), np.bool_)
    place = {op: row for row, op in enumerate(rows)}
    for column, mask in enumerate(masks):
        for op in bits(mask):
            if op in place:
                result[place[op], column] = True
    return result


@dataclass(frozen=True)
class Live:
    """What is live during an op whatever the order: storages surely started, and surely not ended."""

    started: Relation
    """[op, storage]"""
    needed: Relation
    """[op, storage]"""
    bytes: npt.NDArray[np.float64]
    """[op]: units surely live during it."""


def surely_live(problem: Reduced, before: Relation, look: Look = never) -> Live:
    reaches = (before | np.eye(len(before), dtype=np.bool_)).astype(np.float32)
    started = product(reaches.T, problem.starts.astype(np.float32), look) > 0
    needed = (product(reaches, problem.ends.astype(np.float32), look) > 0) | problem.kept
    return Live(started, needed, (started & needed) @ problem.sizes)


def decide_pairs(problem: Reduced, most: int, before: Relation | None = None, look: Look = never) -> Relation | None:
    """The precedences that hold in every order of at most `most` units; None if there is no such order.

    Where u before v would need more than `most` units during u or during v, v runs before u. Repeated until nothing
    follows any more. MODeL's spans (10) follow from the result: the counts of ops before and after.
    Raises Expired if time is up.
    """
    before = problem.before if before is None else before
    while True:
        live = surely_live(problem, before, look)
        if (live.bytes > most).any():
            return None
        started, needed = live.started.astype(np.float64), live.needed.astype(np.float64)
        # [u, v]: units live during v, and during u, if u runs before v.
        during_v = live.bytes[None, :] + product(started, ((1 - started) * needed * problem.sizes).T, look)
        during_u = live.bytes[:, None] + product(started * (1 - needed) * problem.sizes, needed.T, look)
        barred = (during_v > most) | (during_u > most)
        np.fill_diagonal(barred, False)
        if (barred & before).any():
            return None
        found = barred.T & ~before
        if not found.any():
            return before
        before = transitive(before | found, look)
        if before.diagonal().any():
            return None


def transitive(relation: Relation, look: Look = never) -> Relation:
    """The transitive closure."""
    while True:
        matrix = relation.astype(np.float32)
        longer = relation | (product(matrix, matrix, look) > 0)
        if (longer == relation).all():
            return relation
        relation = longer


def least_undecided(problem: Reduced, low: int, high: int, look: Look = never) -> int:
    """The least bound in [low, high] that `decide_pairs` does not refute: no order needs fewer units.

    It refutes a bound whenever it refutes a higher one. `low` must be a bound below all orders, `high` one that some
    order reaches. If time is up, what is proven so far.
    """
    try:
        while low < high:
            middle = (low + high) // 2
            if decide_pairs(problem, middle, look=look) is None:
                low = middle + 1
            else:
                high = middle
    except Expired:
        pass
    return low

# SPDX-License-Identifier: Apache-2.0
"""Memory pools of published systems, which choose addresses while a step runs: what a schedule takes in each.

A value's bytes are requested when it is made or when its copy in begins, and released when it has been used last or its copy out is
done. A result that may take over the bytes of an operand that dies does.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from memc.solvers.offload import Step

from .layers import Kind, LayeredProblem

GRANULE = 512
"""Bytes that sizes in a pool are multiples of."""


@dataclass(frozen=True)
class Event:
    """One request or release."""

    value: int
    at: int
    """The item of the schedule."""
    op: int
    """The op that runs then, or next."""
    releases: bool = False
    over: int | None = None
    """Of a request: the value whose bytes it takes over instead."""


class Group(enum.Enum):
    """Tensors by mobility (Yang and Cheng 2020, algorithm 3)."""

    MOVABLE = "movable"
    """Read by the next layer alone."""
    TEMPORARY = "temporary"
    """Read by several layers, or later."""
    RECLAIMED = "reclaimed"
    """Of layers that are never chosen for copies: dense ones, softmax, dropout."""


def best_fit(problem: LayeredProblem, items: Sequence[tuple[Step, int]]) -> int:
    """Bytes from the lowest to the highest address that a pool ever has in use which takes the smallest free block that is large
    enough, as NVIDIA's CNMeM does."""
    return _most(problem, items, lambda _event: Group.MOVABLE)


def grouped_by_mobility(problem: LayeredProblem, items: Sequence[tuple[Step, int]]) -> int:
    """Bytes that a pool takes in which movable tensors grow from the low end and temporary ones from the high end, so that the
    gap between them can be squeezed out, with a space of its own for reclaimed ones."""
    return _most(problem, items, lambda event: group_of(problem, event))


def group_of(problem: LayeredProblem, event: Event) -> Group:
    """How mobile the bytes of a request are."""
    value, layer_of = event.value, problem.layer_of
    made = problem.maker[value]
    if problem.layers[layer_of[made]].kind in (Kind.DENSE, Kind.SOFTMAX, Kind.DROPOUT):
        return Group.RECLAIMED
    forward = event.op < problem.boundary
    reading = [
        op for op in problem.readers[value] if op > made and op >= event.op and (op < problem.boundary) == forward
    ]
    layers = dict.fromkeys(layer_of[op] for op in reading if layer_of[op] != layer_of[event.op])
    if len(layers) > 1 or (forward and any(layer != layer_of[event.op] + 1 for layer in layers)):
        return Group.TEMPORARY
    return Group.MOVABLE


def events(problem: LayeredProblem, items: Sequence[tuple[Step, int]]) -> Iterator[Event]:
    """The requests and releases of a schedule, in their order."""
    ops = problem.problem.ops
    ends = _last_uses(problem, items)
    op = 0
    for at, (step, number) in enumerate(items):
        if step is Step.RUN:
            op = number
            taken = next((v for v in ops.over[op] if (v, at) in ends), None) if ops.makes[op] else None
            for index, value in enumerate(ops.makes[op]):
                yield Event(value, at, op, over=taken if index == 0 else None)
            for value in dict.fromkeys((*ops.reads[op], *ops.makes[op])):
                if (value, at) in ends and value != taken:
                    yield Event(value, at, op, releases=True)
        elif step is Step.IN_START:
            yield Event(number, at, op)
        elif (number, at) in ends:
            yield Event(number, at, op, releases=True)


def _last_uses(problem: LayeredProblem, items: Sequence[tuple[Step, int]]) -> set[tuple[int, int]]:
    """Each value with each item after which its bytes are released."""
    ops = problem.problem.ops
    used: dict[int, int] = {}
    ends: set[tuple[int, int]] = set()
    for at, (step, number) in enumerate(items):
        if step is Step.RUN:
            ends.update((v, used[v]) for v in ops.makes[number] if v in used)
            used.update(dict.fromkeys((*ops.reads[number], *ops.makes[number]), at))
        elif step is Step.OUT_DONE:
            used.pop(number)
            ends.add((number, at))
        elif step is Step.DROP:
            ends.add((number, used.pop(number)))
        elif step in (Step.IN_START, Step.IN_DONE):
            used[number] = at
    return ends | set(used.items())


@dataclass
class _Pool:
    """Blocks from one end on, without a limit."""

    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    """Offset, size and value, by offset."""

    def take(self, value: int, size: int) -> None:
        size = max(GRANULE, -(-size // GRANULE) * GRANULE)
        best, end = None, 0
        for offset, length, _ in self.blocks:
            gap = offset - end
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, end)
            end = offset + length
        insort(self.blocks, (end if best is None else best[1], size, value))

    def hand_over(self, old: int, new: int) -> None:
        self.blocks = [(offset, size, new if value == old else value) for offset, size, value in self.blocks]

    def release(self, value: int) -> None:
        self.blocks = [block for block in self.blocks if block[2] != value]

    @property
    def top(self) -> int:
        return self.blocks[-1][0] + self.blocks[-1][1] if self.blocks else 0


def _most(problem: LayeredProblem, items: Sequence[tuple[Step, int]], group: Callable[[Event], Group]) -> int:
    """Bytes of the main space, whose ends' tops never meet, and of that for reclaimed tensors."""
    sizes, scratch = problem.problem.ops.sizes, problem.problem.ops.scratch
    pools = {each: _Pool() for each in Group}
    home: dict[int, Group] = {}
    main = reclaimed = 0
    for event in events(problem, items):
        if event.releases:
            if sizes[event.value]:
                pools[home.pop(event.value)].release(event.value)
            continue
        if sizes[event.value] == 0:
            continue
        if event.over is not None:
            home[event.value] = home.pop(event.over)
            pools[home[event.value]].hand_over(event.over, event.value)
        else:
            home[event.value] = group(event)
            pools[home[event.value]].take(event.value, sizes[event.value])
        main = max(main, pools[Group.MOVABLE].top + pools[Group.TEMPORARY].top + scratch[event.op])
        reclaimed = max(reclaimed, pools[Group.RECLAIMED].top)
    return main + reclaimed


OWN_POOLS: dict[str, Callable[[LayeredProblem, Sequence[tuple[Step, int]]], int]] = {
    "vdnn-all": best_fit,
    "vdnn-conv": best_fit,
    "vdnn-dynamic": best_fit,
    "superneurons": best_fit,
    "dymem": grouped_by_mobility,
}
"""The pool of the system that a policy is from; others run in memc's planned arena alone."""

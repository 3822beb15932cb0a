# SPDX-License-Identifier: Apache-2.0
"""Plans for the blocks of a watched step: static storage allocation on a circle, as step follows step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memc.solvers.placement import Buffer, BufferColumns, Lives, Problem, lower_bound, solve

from .plan import ALIGNMENT, NATIVE, ReplayPlan
from .plan_check import check_plan
from .predecessors import predecessors
from .streams import StreamOrder
from .watched import Int64s, WatchedStep


def make_plan(
    step: WatchedStep,
    *,
    solver: str = "auto",
    time_limit: float | None = None,
    threads: int | None = None,
    alignment: int = ALIGNMENT,
    occupied: Sequence[tuple[int, int]] = (),
    torch_version: str = "",
    device_kind: str = "",
) -> ReplayPlan:
    """Give every block that is freed in its step or in the next an offset, so that the arena is small.

    Blocks that live longer, and those of no bytes, are left to the framework's allocator. Blocks of different streams share
    bytes only where `step.waits` puts one after the other: each stream has a part of the arena of its own, or all share it and
    keep their bytes until every other stream has waited, whichever takes less. The plan is checked (`check_plan`).

    Args:
        solver, time_limit, threads: as of `memc.solvers.placement.solve`; the seconds are for each of its problems.
        alignment: bytes of offsets and rounded sizes.
        occupied: offsets and bytes of an arena in use, in which no block is to lie: of blocks that outlive their steps there.
        torch_version, device_kind: what the plan is for, which its file says.

    Raises ValueError for an unknown solver, a wrong alignment or bytes occupied twice, OverflowError for an arena of more than 2^63 - 1 bytes.
    """
    if alignment < 1:
        raise ValueError(f"alignment: expected bytes from 1, got {alignment}")
    _refuse_twice(occupied, alignment)
    begin = time.perf_counter()
    sizes = -(-step.nbytes // alignment) * alignment
    planned = np.flatnonzero(~step.escaping & (sizes > 0))
    blocks = _Blocks(planned, step.freed[planned], sizes[planned], len(step), alignment)
    search = _Search(solver, time_limit, threads, tuple(occupied))
    offsets = np.full(len(step), NATIVE, np.int64)
    offsets[planned], peak = min(_layouts(step, blocks, search), key=lambda layout: layout[1])
    first, preds = predecessors(offsets, sizes)
    plan = ReplayPlan(
        nbytes=step.nbytes,
        streams=step.streams,
        threads=step.threads,
        freed=step.freed,
        offsets=offsets,
        first_pred=first,
        preds=preds,
        arena_bytes=peak,
        lower_bound=lower_bound(blocks.problem()),
        solver=solver,
        seconds=0.0,
        alignment=alignment,
        torch_version=torch_version,
        device_kind=device_kind,
        waits=step.waits,
    )
    check_plan(plan)
    return replace(plan, seconds=time.perf_counter() - begin)


@dataclass(frozen=True)
class _Search:
    solver: str
    time_limit: float | None
    threads: int | None
    occupied: tuple[tuple[int, int], ...]

    def solve(self, blocks: _Blocks, base: int = 0) -> tuple[Int64s, int]:
        """Offsets of the blocks above `base`, and the end of the last one, around what is occupied there."""
        problem = blocks.problem()
        taken = [(max(offset - base, 0), offset + nbytes - base) for offset, nbytes in self.occupied]
        problem = _around(problem, [(low, high) for low, high in taken if low < high], blocks.requests)
        found = solve(problem, self.solver, time_limit=self.time_limit, threads=self.threads)
        offsets = found.offset_array()[: len(blocks.sizes)]
        return base + offsets, base + int((offsets + blocks.sizes).max(initial=0))


def _around(problem: Problem, taken: Sequence[tuple[int, int]], requests: int) -> Problem:
    """The problem with buffers of fixed offsets, live all the time, where the arena is taken."""
    if not taken:
        return problem
    fixed = [Buffer(high - low, 0, requests, low) for low, high in taken]
    return replace(problem, buffers=[*problem.buffers, *fixed])


def _refuse_twice(occupied: Sequence[tuple[int, int]], alignment: int) -> None:
    ends = sorted((offset, offset + nbytes) for offset, nbytes in occupied)
    for (offset, end), (after, _) in zip(ends, [*ends[1:], (ends[-1][1] if ends else 0, 0)]):
        if offset < 0 or offset % alignment or end <= offset or after < end:
            raise ValueError(
                f"occupied: expected bytes of their own from a multiple of {alignment} on, got {offset} to {end}"
            )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Blocks on the circle of a step's requests."""

    begin: Int64s
    """The number of the request."""
    end: Int64s
    """Past the step's end for those that live into the next step, and at most a circle after `begin`."""
    sizes: Int64s
    requests: int
    alignment: int

    def take(self, members: Int64s) -> _Blocks:
        return replace(self, begin=self.begin[members], end=self.end[members], sizes=self.sizes[members])

    def problem(self) -> Problem:
        """The circle, cut where the fewest bytes are live: what lives across the cut has a gap in its lifetime."""
        n = self.requests
        lowers = (self.begin - self._cut()) % max(n, 1)
        uppers = lowers + (self.end - self.begin)
        over = np.flatnonzero(uppers > n)
        lives: list[Lives] = [()] * len(lowers)
        for at, lower, upper in zip(over.tolist(), lowers[over].tolist(), uppers[over].tolist()):
            if upper - n < lower:
                lives[at] = ((0, upper - n), (lower, n))
        lowers[over], uppers[over] = 0, n
        return Problem(BufferColumns(self.sizes, lowers, uppers, lives=lives), self.alignment)

    def _cut(self) -> int:
        """The request before which the fewest bytes are live: as the cut counts what lives on, not what begins or ends there."""
        n = self.requests
        change = np.zeros(2 * n + 1, np.int64)
        np.add.at(change, self.begin + 1, self.sizes)
        np.add.at(change, self.end, -self.sizes)
        live = np.cumsum(change)
        return int(np.argmin(live[:n] + live[n : 2 * n])) if n else 0


def _layouts(step: WatchedStep, blocks: _Blocks, search: _Search) -> Iterator[tuple[Int64s, int]]:
    """Offsets and bytes of arenas in which streams do not disturb each other."""
    streams = step.streams[blocks.begin]
    names = np.unique(streams)
    if len(names) < 2:
        yield search.solve(blocks)
        return
    offsets = np.zeros(len(streams), np.int64)
    base = 0
    for name in names:
        members = np.flatnonzero(streams == name)
        offsets[members], base = search.solve(blocks.take(members), base)
    yield offsets, base
    if step.waits:
        order = StreamOrder(len(step), step.waits)
        ends = [
            _shared(order, names, *row) for row in zip(streams.tolist(), blocks.begin.tolist(), blocks.end.tolist())
        ]
        longer = np.minimum(np.array(ends, np.int64), blocks.begin + len(step))
        yield search.solve(replace(blocks, end=longer))


def _shared(order: StreamOrder, names: Int64s, stream: int, begin: int, end: int) -> int:
    """The moment from which all streams may use a block's bytes."""
    passed = order.passed(stream, end)
    return max(passed.get(name, begin + 2**40) for name in names.tolist())

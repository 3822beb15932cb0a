# SPDX-License-Identifier: Apache-2.0
"""Control flow on data that is known only when the model runs: both branches of an `If`, or all turns that a `Loop` may take,
are part of the program, and `select` takes the results of those that count.

Nothing that memc computes can fail or be seen but for its results, so what is computed in vain does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Union

import numpy as np

from memc.ir.core import Value
from memc.ir.types import DType

from .context import Known, NodeContext
from .data_dependent_sizes import Count

Flag = Union[bool, Value]
"""bool[], or what is known of it at import."""

Body = Callable[[Sequence[Known]], Sequence[Known]]
"""Imports a subgraph once more, on these inputs."""


def flag_of(ctx: NodeContext, known: Known) -> Flag:
    """A condition, which may have any shape of one element."""
    if not isinstance(known, Value):
        return bool(np.all(known))
    if known.type.elements != 1 or known.type.dtype is not DType.BOOL:
        raise ctx.unsupported(f"expected a condition of one bool, got {known.type}")
    return known if known.type.rank == 0 else ctx.b.op("reshape", [known], shape=())


def both(ctx: NodeContext, a: Flag, b: Flag) -> Flag:
    """Whether both are true."""
    if isinstance(a, Value) and isinstance(b, Value):
        return ctx.b.op("logical_and", [a, b])
    known, other = (a, b) if isinstance(a, bool) else (b, a)
    return other if known else False


def require_inference(ctx: NodeContext) -> None:
    """Raise UnsupportedError in training: gradients of what does not count may be nan, which 0 times nan leaves."""
    if ctx.trainable:
        raise ctx.unsupported("control flow that depends on data of a run, in a model to be trained")


def run_if(ctx: NodeContext, condition: Value, then: Body, otherwise: Body) -> list[Known]:
    """Both branches, and the results of one."""
    require_inference(ctx)
    flag = flag_of(ctx, condition)
    assert isinstance(flag, Value)
    with checked_where(ctx, flag):
        first = then([])
    with checked_where(ctx, ctx.b.op("logical_not", [flag])):
        second = otherwise([])
    return [choose(ctx, flag, a, b) for a, b in zip(first, second)]


@contextmanager
def checked_where(ctx: NodeContext, flag: Flag) -> Iterator[None]:
    """Counts of what is imported in here are checked only in runs where it counts. What is asked for again outside is made
    again there, with a check of its own."""
    before = dict(ctx.sizes.checks)
    nonzero, places, together = dict(ctx.sizes.nonzero), dict(ctx.sizes.places), dict(ctx.sizes.together)
    yield
    ctx.sizes.nonzero, ctx.sizes.places, ctx.sizes.together = nonzero, places, together
    new = {count: room for count, room in ctx.sizes.checks.items() if count not in before}
    if isinstance(flag, Value) and new:
        zero = ctx.b.scalar(0, DType.I64)
        masked = {ctx.b.op("select", [flag, count, zero]): room for count, room in new.items()}
        ctx.sizes.checks = {**before, **masked}


def choose(ctx: NodeContext, flag: Value, a: Known, b: Known) -> Known:
    """`a` where the flag is true, else `b`. Where they have different sizes, the result's size depends on data."""
    if a is b:
        return a
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes():
            return a
    x, y = (known if isinstance(known, Value) else ctx.b.constant(known) for known in (a, b))
    if x.type.dtype is not y.type.dtype or x.type.rank != y.type.rank:
        raise ctx.unsupported(f"expected results of one element type and rank, got {x.type} and {y.type}")
    shape = tuple(map(max, x.type.shape, y.type.shape))
    counts = _chosen_counts(ctx, flag, x, y)
    found = ctx.b.op("select", [flag, _enlarged(ctx, x, shape), _enlarged(ctx, y, shape)])
    if counts:
        ctx.sizes.of[found] = counts
    return found


def _chosen_counts(ctx: NodeContext, flag: Value, x: Value, y: Value) -> dict[int, Count]:
    """The counts of a choice by axis."""
    found = {}
    for axis, extents in enumerate(zip(x.type.shape, y.type.shape)):
        own = [ctx.sizes.of.get(value, {}).get(axis) for value in (x, y)]
        if own[0] == own[1] and extents[0] == extents[1]:
            if own[0] is not None:
                found[axis] = own[0]
            continue
        ends = [
            count.value if count is not None else ctx.b.scalar(extent, DType.I64) for count, extent in zip(own, extents)
        ]
        found[axis] = Count(ctx.b.op("select", [flag, *ends]), max(extents))
    return found


def _enlarged(ctx: NodeContext, value: Value, shape: tuple[int, ...]) -> Value:
    """A value with padding behind it."""
    if value.type.shape == shape:
        return value
    dtype = value.type.dtype
    if value.type.elements == 0:
        return ctx.b.op("broadcast", [ctx.b.scalar(0, dtype)], shape=shape)
    for axis, extent in enumerate(shape):
        own = value.type.shape
        if own[axis] < extent:
            rest = (*own[:axis], extent - own[axis], *own[axis + 1 :])
            padding = ctx.b.op("broadcast", [ctx.b.scalar(0, dtype)], shape=rest)
            value = ctx.b.op("concat", [value, padding], axis=axis)
    return value


@dataclass
class Turns:
    """A loop on its way."""

    carried: list[Known]
    scanned: list[list[Known]]
    """For each scan output what the turns gave."""
    going: Flag = True
    """Whether the next turn counts."""
    made: int = 0
    """Turns that are part of the program."""
    count: Value | None = None
    """i64[]: the turns that count; None: all."""


def run_loop(
    ctx: NodeContext,
    turns: Turns,
    trips: Known | None,
    most: int,
    body: Body,
    stack: Callable[[Sequence[Known]], Known],
) -> list[Known]:
    """The rest of a loop: as many turns as there may be, each of which counts if all before it did and the loop goes on.

    `trips`: the greatest number of turns, if it is given. `most`: turns of which a program can consist. Raises
    UnsupportedError where nothing says that these are enough.
    """
    require_inference(ctx)
    limit = _greatest(ctx, trips)
    room = min(most if limit is None else max(limit, 0), ctx.sizes.room(most))
    if room == most and (limit is None or limit > most) and ctx.sizes.limit is None:
        raise ctx.unsupported(
            "how often it runs depends on data of a run; bind what decides it with --bind NAME=VALUE, or say with --max-size N how "
            "often it runs at most"
        )
    while turns.made < room and turns.going is not False:
        counts = both(ctx, turns.going, _below(ctx, turns.made, trips))
        if turns.count is None and isinstance(counts, Value):
            turns.count = ctx.b.scalar(turns.made, DType.I64)
        _turn(ctx, turns, counts, body)
    more = both(ctx, turns.going, _below(ctx, turns.made, trips))
    if more is True:
        raise ctx.unsupported(f"it runs more than {room} times; give more with --max-size N")
    if isinstance(more, Value):
        assert turns.count is not None or turns.made == room
        done = turns.count if turns.count is not None else ctx.b.scalar(turns.made, DType.I64)
        ctx.sizes.checks[ctx.b.op("add", [done, ctx.b.op("cast", [more], to=DType.I64)])] = room
    return [*turns.carried, *(_scan_output(ctx, turns, items, stack) for items in turns.scanned)]


def _greatest(ctx: NodeContext, trips: Known | None) -> int | None:
    """What is known of the number of turns: itself, or the most that a count of elements can be."""
    if isinstance(trips, np.ndarray):
        return int(trips.reshape(()))
    numbers = ctx.sizes.numbers.get(trips) if trips is not None else None
    return None if numbers is None else int(numbers.high.reshape(()))


def _below(ctx: NodeContext, made: int, trips: Known | None) -> Flag:
    """Whether a turn with this number is among the first `trips`."""
    if trips is None or isinstance(trips, np.ndarray):
        return trips is None or made < int(trips.reshape(()))
    end = trips if trips.type.rank == 0 else ctx.b.op("reshape", [trips], shape=())
    return ctx.b.op("less", [ctx.b.scalar(made, DType.I64), end])


def _turn(ctx: NodeContext, turns: Turns, counts: Flag, body: Body) -> None:
    """One more turn."""
    with checked_where(ctx, counts):
        again, *results = body([np.asarray(turns.made, np.int64), np.asarray(True), *turns.carried])
    new = results[: len(turns.carried)]
    if isinstance(counts, Value):
        new = [choose(ctx, counts, a, b) for a, b in zip(new, turns.carried)]
        assert turns.count is not None
        turns.count = ctx.b.op("add", [turns.count, ctx.b.op("cast", [counts], to=DType.I64)])
    turns.carried = list(new)
    for items, item in zip(turns.scanned, results[len(new) :]):
        items.append(item)
    turns.going = both(ctx, counts, flag_of(ctx, again))
    turns.made += 1


def _scan_output(
    ctx: NodeContext, turns: Turns, items: Sequence[Known], stack: Callable[[Sequence[Known]], Known]
) -> Known:
    """What the turns gave, one behind the other."""
    if not items:
        raise ctx.unsupported("it runs zero times, and its scan outputs have no known shape then")
    require_static(ctx, items)
    found = stack(items)
    return found if turns.count is None else counted(ctx, found, 0, Count(turns.count, len(items)))


def require_static(ctx: NodeContext, items: Sequence[Known]) -> None:
    """Raise UnsupportedError for what turns gave, if that has a size that depends on data."""
    if any(isinstance(item, Value) and item in ctx.sizes.of for item in items):
        raise ctx.unsupported("a scan output whose turns have a size that depends on data")


def counted(ctx: NodeContext, found: Known, axis: int, count: Count) -> Value:
    """A stack of what the turns gave, of which so many count."""
    value = found if isinstance(found, Value) else ctx.b.constant(found)
    ctx.sizes.of.setdefault(value, {})[axis] = count
    return value

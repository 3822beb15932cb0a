# SPDX-License-Identifier: Apache-2.0
"""Numbers made of sizes that depend on data: what `Shape` gives of such a value, and what is computed of that. Of each number it
is known how small and how great it can be, so that it can be a size itself, with room for its greatest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Optional, Union

import numpy as np

from memc.ir.core import Array, Value
from memc.ir.types import DType

from .context import Importer, Known, NodeContext
from .data_dependent_sizes import Count, Numbers

Fold = Callable[[Sequence[Optional[Array]]], Union[Sequence[Known], None]]
"""Evaluates the node on known inputs."""

MOVES = frozenset({"Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Cast", "Identity", "Transpose", "Concat"})
"""Ops whose results are elements of input 0, or of all inputs of `Concat`."""

COMBINES = frozenset({"Concat", "Min", "Max", "Add", "Mul"})
"""Ops all of whose inputs are data; of the others, input 0 is."""

GROWS = MOVES | COMBINES | {"ReduceMin", "ReduceMax", "ReduceSum", "ReduceProd"}
"""Ops whose results are greater, or the same, for greater data from 0 on."""


def numbers_of(ctx: NodeContext, known: Known | None) -> Numbers | None:
    """What is known of an input's elements; None if it is anything."""
    if isinstance(known, np.ndarray):
        return Numbers(known, known, np.full(known.shape, -1))
    return ctx.sizes.numbers.get(known) if known is not None else None


def import_numbers(ctx: NodeContext, importer: Importer, fold: Fold) -> Sequence[Known]:
    """As the importer, for inputs of which some are such numbers: results are, too, or are known."""
    inputs = [numbers_of(ctx, known) for known in ctx.inputs]
    given = [n for n, known in enumerate(ctx.inputs) if known is not None]
    if ctx.node.op_type not in GROWS or any(inputs[n] is None for n in given):
        return importer(ctx)
    data = len(inputs) if ctx.node.op_type in COMBINES else 1
    grows = all(n is None or (n.low >= 0).all() for n in inputs[:data])
    found = _bounds(ctx, fold, inputs) if grows and all(map(_is_fixed, inputs[data:])) else None
    if found is None or (found.low < 0).any() or (found.low > found.high).any():
        return importer(ctx)
    if ctx.node.op_type == "Cast" and not _holds(found, inputs[0]):
        return importer(ctx)
    if (found.low == found.high).all():
        return [found.low]
    results = importer(ctx)
    (value,) = results
    if isinstance(value, Value):
        ctx.sizes.numbers[value] = found
    return results


def _is_fixed(numbers: Numbers | None) -> bool:
    """Whether each number is always the same: of indices and axes, greater ones do not give greater results."""
    return numbers is None or bool((numbers.low == numbers.high).all())


def _holds(cast: Numbers, numbers: Numbers | None) -> bool:
    """Whether a type that numbers are cast to holds them."""
    return numbers is not None and bool((cast.low == numbers.low).all() and (cast.high == numbers.high).all())


def _bounds(ctx: NodeContext, fold: Fold, inputs: Sequence[Numbers | None]) -> Numbers | None:
    """What the node makes of the least and of the greatest numbers."""
    least = _evaluated(fold, [None if n is None else n.low for n in inputs])
    most = _evaluated(fold, [None if n is None else n.high for n in inputs])
    if least is None or most is None or least.shape != most.shape:
        return None
    symbols = None
    if ctx.node.op_type in MOVES:
        data = len(inputs) if ctx.node.op_type == "Concat" else 1
        places = [None if n is None else n.symbols if index < data else n.low for index, n in enumerate(inputs)]
        symbols = _evaluated(fold, places)
    return Numbers(least, most, np.full(least.shape, -1) if symbols is None else symbols.astype(np.int64))


def _evaluated(fold: Fold, inputs: Sequence[Array | None]) -> Array | None:
    """The result of a node with one, if it can be evaluated."""
    found = fold(inputs)
    return found[0] if found is not None and isinstance(found[0], np.ndarray) else None


def shape_of(ctx: NodeContext, value: Value, start: int, stop: int) -> Value:
    """The extents of a value with counts, from axis `start` up to `stop`: i64[stop - start]."""
    counts, parts, symbols = ctx.sizes.of[value], [], []
    for axis in range(start, stop):
        count = counts.get(axis)
        if count is None:
            parts.append(ctx.b.constant(np.asarray([value.type.shape[axis]], np.int64)))
            symbols.append(-1)
            continue
        parts.append(ctx.b.op("reshape", [count.value], shape=(1,)))
        symbols.append(ctx.sizes.symbol(count))
    found = ctx.b.op("concat", parts, axis=0) if len(parts) > 1 else parts[0]
    high = np.asarray(value.type.shape[start:stop], np.int64)
    ids = np.asarray(symbols)
    ctx.sizes.numbers[found] = Numbers(np.where(ids < 0, high, 0), high, ids)
    return found


def count_at(ctx: NodeContext, value: Value, place: int) -> Count:
    """The number at a place of a vector, as a count."""
    numbers = ctx.sizes.numbers[value]
    symbol = int(numbers.symbols.reshape(-1)[place])
    if symbol >= 0:
        return ctx.sizes.symbols[symbol]
    flat = ctx.b.op("reshape", [value], shape=(value.type.elements,))
    part = ctx.b.op("slice", [flat], starts=(place,), stops=(place + 1,), steps=(1,))
    number = ctx.b.op("reshape", [ctx.b.op("cast", [part], to=DType.I64)], shape=())
    numbers.symbols.reshape(-1)[place] = ctx.sizes.symbol(Count(number, int(numbers.high.reshape(-1)[place])))
    return count_at(ctx, value, place)


def counts_in(ctx: NodeContext, known: Known | None) -> tuple[Array, dict[int, Count]] | None:
    """A shape that is given as a tensor: its greatest, and the counts by axis; None where it has no bound."""
    numbers = numbers_of(ctx, known)
    if numbers is None:
        return None
    high = numbers.high.reshape(-1)
    open_axes = np.flatnonzero(numbers.low.reshape(-1) != high)
    counts = {int(axis): count_at(ctx, known, int(axis)) for axis in open_axes} if isinstance(known, Value) else {}
    return high.astype(np.int64), counts

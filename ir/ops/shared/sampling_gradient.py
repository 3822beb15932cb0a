# SPDX-License-Identifier: Apache-2.0
"""Gradients of ops that read an image between its elements: grid_sample, roi_align, deform_conv.

What such an op reads at a position is a sum of elements around it, each weighted by a product of one factor per axis. So
the gradient in the image adds weight * g to each of these elements, and the one in a position is the sum of
g * element * (derivative of the weight). Images are seen as rows, [pixels, channels], so that both are gathers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ...build import IRBuilder
from ...core import Value
from ...types import DType
from .derivatives import keep_where, one_minus, within


@dataclass(frozen=True)
class Step:
    """A neighbour of positions along one axis. All values have the positions' shape."""

    index: Value
    """i64, inside the axis."""
    weight: Value
    slope: Value | None
    """The derivative of the weight in the position; None if it is flat."""


@dataclass(frozen=True)
class Tap:
    """A neighbour of positions in the image. All values have the positions' shape."""

    row: Value
    """i64: which row of the image it is."""
    weight: Value
    slopes: tuple[Value | None, ...]
    """The derivative of the weight in the position along each axis."""


def step(b: IRBuilder, pixel: Value, extent: int, weight: Value, slope: Value | None, outside_counts: bool) -> Step:
    """The neighbour at `pixel`, a whole float; beyond the axis it is the outermost element, or counts nothing."""
    held = b.op("clip", [pixel], min=0.0, max=float(extent - 1))
    if not outside_counts:
        inside = within(b, pixel, 0.0, float(extent - 1))
        weight = keep_where(b, inside, weight)
        slope = None if slope is None else keep_where(b, inside, slope)
    return Step(b.op("cast", [held], to=DType.I64), weight, slope)


def bilinear_steps(b: IRBuilder, at: Value, extent: int) -> list[Step]:
    """The two neighbours of positions along an axis, of which those outside count nothing."""
    floor = b.op("floor", [at])
    share = b.op("sub", [at, floor])
    one, minus = (b.op("broadcast", [b.scalar(n, at.type.dtype)], shape=at.type.shape) for n in (1, -1))
    above = b.op("add", [floor, b.scalar(1, at.type.dtype)])
    return [
        step(b, floor, extent, one_minus(b, share), minus, outside_counts=False),
        step(b, above, extent, share, one, outside_counts=False),
    ]


def combine(b: IRBuilder, image: Value, axes: Sequence[Sequence[Step]], extents: Sequence[int]) -> list[Tap]:
    """The neighbours of each position: one per choice of a step on each axis. `image`, i64, is which image it lies in."""
    taps = []
    for steps in product(*axes):
        row = image
        for one, extent in zip(steps, extents):
            row = b.op("add", [b.op("mul", [row, b.scalar(extent, DType.I64)]), one.index])
        weights = [one.weight for one in steps]
        slopes = [
            None if one.slope is None else _product(b, [*weights[:axis], one.slope, *weights[axis + 1 :]])
            for axis, one in enumerate(steps)
        ]
        taps.append(Tap(row, _product(b, weights), tuple(slopes)))
    return taps


def _product(b: IRBuilder, factors: Sequence[Value]) -> Value:
    found = factors[0]
    for factor in factors[1:]:
        found = b.op("mul", [found, factor])
    return found


def rows_of(b: IRBuilder, x: Value, lead: int) -> Value:
    """x [lead..., channels, spatial...] as [lead... * spatial..., channels]."""
    rank = x.type.rank
    moved = b.op("transpose", [x], perm=(*range(lead), *range(lead + 1, rank), lead))
    channels = x.type.shape[lead]
    return b.op("reshape", [moved], shape=(x.type.elements // max(channels, 1), channels))


def image_of(b: IRBuilder, rows: Value, shape: Sequence[int], lead: int) -> Value:
    """What `rows_of` undoes."""
    spread = b.op("reshape", [rows], shape=(*shape[:lead], *shape[lead + 1 :], shape[lead]))
    last = len(shape) - 1
    return b.op("transpose", [spread], perm=(*range(lead), last, *range(lead, last)))


def images(b: IRBuilder, shape: Sequence[int], axes: int) -> Value:
    """Which image each position [first `axes` of them number images, others] lies in, row-major: i64 of `shape`."""
    line = b.op("iota", [], shape=(math.prod(shape[:axes]),), axis=0, dtype=DType.I64)
    column = b.op("reshape", [line], shape=(*shape[:axes], *[1] * (len(shape) - axes)))
    return b.op("broadcast", [column], shape=tuple(shape))


def weighted(b: IRBuilder, rows: Value, weight: Value) -> Value:
    """Rows [positions..., channels] times a weight per position."""
    return b.op("mul", [rows, b.op("reshape", [weight], shape=(*weight.type.shape, 1))])


def read(b: IRBuilder, rows: Value, taps: Sequence[Tap]) -> Value:
    """What the op reads at each position: [positions..., channels]."""
    parts = [weighted(b, b.op("gather", [rows, tap.row], axis=0), tap.weight) for tap in taps]
    total = parts[0]
    for part in parts[1:]:
        total = b.op("add", [total, part])
    return total


def rows_gradient(b: IRBuilder, g: Value, taps: Sequence[Tap], count: int) -> Value:
    """The gradient in the image's `count` rows, from g [positions..., channels] in what is read."""
    total = None
    for tap in taps:
        part = b.op("gather_grad", [tap.row, weighted(b, g, tap.weight)], axis=0, extent=count)
        total = part if total is None else b.op("add", [total, part])
    assert total is not None
    return total


def position_gradients(b: IRBuilder, g: Value, rows: Value, taps: Sequence[Tap]) -> list[Value | None]:
    """The gradient in the positions along each axis; None where nothing changes with them."""
    totals: list[Value | None] = [None] * len(taps[0].slopes)
    for tap in taps:
        if all(slope is None for slope in tap.slopes):
            continue
        terms = b.op("mul", [g, b.op("gather", [rows, tap.row], axis=0)])
        along = b.op("reduce_sum", [terms], axes=(terms.type.rank - 1,), keepdims=False)
        for axis, slope in enumerate(tap.slopes):
            if slope is not None:
                part, before = b.op("mul", [slope, along]), totals[axis]
                totals[axis] = part if before is None else b.op("add", [before, part])
    return totals

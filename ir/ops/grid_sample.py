# SPDX-License-Identifier: Apache-2.0
"""grid_sample: interpolated reads of an image at positions that another tensor gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import clamped
from .shared.derivatives import scaled, zeros
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.sampling_gradient import Step, combine, image_of, images, position_gradients, rows_gradient, rows_of, step
from .shared.window import choice, flag, require_count, require_numeric

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_ALPHA = -0.75
"""Keys' cubic convolution parameter."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 2)
    require_numeric(operands)
    x, grid = operands
    choice(attrs, "mode", tuple(_TAPS))
    choice(attrs, "padding_mode", ("zeros", "border", "reflection"))
    flag(attrs, "align_corners")
    rank = x.rank - 2
    if x.dtype not in (DType.F32, DType.F64):
        raise OpError(f"expected operands of f32 or f64, got {x} and {grid}")
    if rank < 1 or grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank or 0 in x.shape[2:]:
        raise OpError(f"expected x [N, C, spatial...] and grid [N, out..., {rank}], got {x} and {grid}")
    return [x.with_shape((*x.shape[:2], *grid.shape[1:-1]))]


def _border(extent: int, align: bool) -> tuple[float, float]:
    return (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)


def _reflect(x: Array, low: float, high: float) -> Array:
    """Reflect at the nearer border until inside [low, high]."""
    if high <= low:
        return np.full_like(x, low)
    span = high - low
    below = x < low
    distance = np.where(below, low - x, x - high)
    turns = np.trunc(distance / span)
    rest = distance - turns * span
    rising = below == (turns % 2 == 0)
    return np.where(below | (x > high), np.where(rising, low + rest, high - rest), x)


def _cubic(frac: Array) -> list[Array]:
    near = [((_ALPHA + 2) * d - (_ALPHA + 3)) * d * d + 1 for d in (frac, 1 - frac)]
    far = [((_ALPHA * d - 5 * _ALPHA) * d + 8 * _ALPHA) * d - 4 * _ALPHA for d in (1 + frac, 2 - frac)]
    return [far[0], near[0], near[1], far[1]]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, grid = inputs
    mode, padding, align = attrs["mode"], attrs["padding_mode"], bool(attrs["align_corners"])
    spatial = x.shape[2:]
    axes: list[list[tuple[Array, Array, Array]]] = []
    for axis, extent in enumerate(spatial):
        n = grid[..., len(spatial) - 1 - axis]
        low, high = _border(extent, align)
        at = (n + 1) / 2 * (extent - 1) if align else ((n + 1) * extent - 1) / 2
        at = np.where(np.isnan(at), low, at)
        if mode == "nearest":
            at = np.rint(at)
        outside = (at < low) | (at > high)
        if padding == "border" and mode != "cubic":
            at = np.where(outside, np.clip(at, 0, extent - 1), at)
        elif padding == "reflection":
            at = _reflect(at, low, high)
        at = np.clip(at, -4, extent + 3)
        floor = np.floor(at)
        frac = at - floor
        if mode == "cubic":
            taps = [(floor - 1 + t, w) for t, w in enumerate(_cubic(frac))]
        else:
            taps = [(floor, 1 - frac), (floor + 1, frac)] if mode == "linear" else [(floor, np.ones_like(frac))]
        axes.append([_pixel(i, w, extent, str(padding), align) for i, w in taps])
    batch = np.arange(x.shape[0]).reshape(-1, *([1] * len(spatial)))
    channels_last = np.moveaxis(x, 1, -1)
    total = np.zeros((*grid.shape[:-1], x.shape[1]), dtype=x.dtype)
    for combination in product(*axes):
        weight = math.prod(w for _, w, _ in combination)
        inside = np.logical_and.reduce([ok for _, _, ok in combination])
        value = channels_last[(batch, *(i for i, _, _ in combination))]
        total += np.where(inside, weight, 0)[..., None].astype(x.dtype) * value
    return [np.ascontiguousarray(np.moveaxis(total, -1, 1))]


def _pixel(index: Array, weight: Array, extent: int, padding: str, align: bool) -> tuple[Array, Array, Array]:
    """A valid index for a tap, its weight, and whether it counts."""
    inside = np.ones(index.shape, dtype=bool)
    if padding == "zeros":
        inside = (index >= 0) & (index < extent)
    elif padding == "reflection":
        index = _reflect(index, *_border(extent, align))
    return np.clip(index.astype(np.int64), 0, extent - 1), weight, inside


def _reflect_expr(b: Builder, x: Expr, low: float, high: float, dtype: DType) -> Expr:
    """`_reflect` as a triangle wave, which names x only twice: this stands inside indices, where nothing is shared."""
    if high <= low:
        return b.const(low, dtype)
    span = high - low
    shifted = x - low
    within = shifted - b.unary("floor", shifted * (0.5 / span)) * (2 * span)
    return (low + span) - b.unary("abs", within - span)


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    mode, padding, align = str(op.attrs["mode"]), op.attrs["padding_mode"], bool(op.attrs["align_corners"])
    spatial, dtype = x.shape[2:], x.dtype
    zero = b.const(0, dtype)

    def position(axis: int, *index: Expr) -> Expr:
        extent = spatial[axis]
        low, high = _border(extent, align)
        grid = inputs[1][(*index, len(spatial) - 1 - axis)]
        at = (grid + 1.0) * 0.5 * float(extent - 1) if align else ((grid + 1.0) * float(extent) - 1.0) * 0.5
        if mode == "nearest":
            at = b.unary("rint", at)
        if padding == "reflection":
            at = _reflect_expr(b, at, low, high, dtype)
        # Beyond these every neighbour is padding. Not a number fails the comparison and lands there too.
        at = b.select(at > -4.0, at, b.const(-4, dtype))
        return b.select(at < extent + 3.0, at, b.const(extent + 3, dtype))

    def weight(frac: Expr, tap: Expr) -> Expr:
        if mode == "linear":
            return b.select(b.equal(tap, 0), 1.0 - frac, frac)
        d = b.unary("abs", frac + 1.0 - b.cast(tap, dtype))
        near = ((_ALPHA + 2) * d - (_ALPHA + 3)) * d * d + 1.0
        far = ((_ALPHA * d - 5 * _ALPHA) * d + 8 * _ALPHA) * d - 4 * _ALPHA
        return b.select(d <= 1.0, near, far)

    # Stages of their own, so that a position is worked out once however often it is used.
    lead = TensorType(dtype, op.operands[1].type.shape[:-1])
    where = [b.compute(lead, partial(position, axis)) for axis in range(len(spatial))]

    def body(n: Expr, c: Expr, *out: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            index: list[Expr] = []
            guards: list[Expr] = []
            factor: Expr | None = None
            for axis, extent in enumerate(spatial):
                at = where[axis][(n, *out)]
                floor = b.unary("floor", at)
                pixel = floor
                if taps:
                    pixel = floor + b.cast(taps[axis], dtype) - (1.0 if mode == "cubic" else 0.0)
                    share = weight(at - floor, taps[axis])
                    factor = share if factor is None else factor * share
                if padding == "reflection":
                    pixel = _reflect_expr(b, pixel, *_border(extent, align), dtype)
                if padding == "zeros":
                    guards += [pixel >= 0.0, pixel < float(extent)]
                index.append(clamped(b, b.cast(pixel, DType.I32), extent))
            value = inputs[0][(n, c, *index)]
            if factor is not None:
                value = value * factor
            return b.select(b.logical_and(*guards), value, zero) if guards else value

        return term() if mode == "nearest" else b.reduce("sum", [_TAPS[mode]] * len(spatial), term)

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    x = op.operands[0].type
    taps: int = _TAPS[str(op.attrs["mode"])] ** (x.rank - 2)
    return 2 * op.result.type.elements * taps


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x and the grid. Where a position is rounded or held at a border, the result is flat in it."""
    (g,) = grads
    x, grid = op.operands
    if g is None or g.type.elements == 0:
        return [None, None]
    spatial = x.type.shape[2:]
    lead = grid.type.shape[:-1]
    positions = [_position(b, op, grid, axis) for axis in range(len(spatial))]
    steps = [_steps(b, op, at, extent) for (at, _), extent in zip(positions, spatial)]
    taps = combine(b, images(b, lead, 1), steps, spatial)
    rows = rows_of(b, x, 1)
    flowing = b.op("transpose", [g], perm=(0, *range(2, g.type.rank), 1))
    of_x = image_of(b, rows_gradient(b, flowing, taps, rows.type.shape[0]), x.type.shape, 1)
    if op.attrs["mode"] == "nearest":
        return [of_x, None]
    columns = []
    for (at, rate), along in zip(positions, position_gradients(b, flowing, rows, taps)):
        column = zeros(b, at.type) if along is None or rate is None else b.op("mul", [along, rate])
        columns.append(b.op("reshape", [column], shape=(*lead, 1)))
    joined = b.op("concat", columns[::-1], axis=grid.type.rank - 1) if len(columns) > 1 else columns[0]
    return [of_x, joined]


def _position(b: IRBuilder, op: Op, grid: Value, axis: int) -> tuple[Value, Value | None]:
    """Where the grid points along an axis, in elements, and the derivative of that in the grid; None if it is flat."""
    rank, dtype = grid.type.shape[-1], grid.type.dtype
    extent = op.operands[0].type.shape[2 + axis]
    align = bool(op.attrs["align_corners"])
    number = rank - 1 - axis
    starts = (*[0] * (grid.type.rank - 1), number)
    stops = (*grid.type.shape[:-1], number + 1)
    part = b.op("slice", [grid], starts=starts, stops=stops, steps=(1,) * grid.type.rank)
    n = b.op("add", [b.op("reshape", [part], shape=grid.type.shape[:-1]), b.scalar(1, dtype)])
    factor = (extent - 1) / 2 if align else extent / 2
    at = scaled(b, n, factor)
    at = at if align else b.op("sub", [at, b.scalar(0.5, dtype)])
    if op.attrs["mode"] == "nearest":
        at = b.op("round", [at])
    rate: Value | None = b.op("broadcast", [b.scalar(factor, dtype)], shape=at.type.shape)
    if op.attrs["padding_mode"] == "reflection":
        at, rising = _reflected(b, at, *_border(extent, align))
        rate = None if rising is None else scaled(b, rising, factor)
    # Beyond these every neighbour is padding. Not a number fails the comparison and lands there too.
    at = b.op("select", [b.op("greater", [at, b.scalar(-4, dtype)]), at, b.scalar(-4, dtype)])
    return b.op("min", [at, b.scalar(extent + 3, dtype)]), rate


def _reflected(b: IRBuilder, at: Value, low: float, high: float) -> tuple[Value, Value | None]:
    """`_reflect` as a triangle wave, and its derivative: 1, or -1 where it falls."""
    dtype = at.type.dtype
    if high <= low:
        return b.op("broadcast", [b.scalar(low, dtype)], shape=at.type.shape), None
    span = b.scalar(high - low, dtype)
    turns = b.op("floor", [scaled(b, b.op("sub", [at, b.scalar(low, dtype)]), 0.5 / (high - low))])
    shifted = b.op("sub", [b.op("sub", [at, b.scalar(low, dtype)]), scaled(b, turns, 2 * (high - low))])
    from_top = b.op("sub", [span, shifted])
    height = b.op("sub", [b.scalar(high, dtype), b.op("abs", [from_top])])
    return height, b.op("sign", [from_top])


def _steps(b: IRBuilder, op: Op, at: Value, extent: int) -> list[Step]:
    """The neighbours of positions along an axis."""
    dtype = at.type.dtype
    mode, padding, align = op.attrs["mode"], op.attrs["padding_mode"], bool(op.attrs["align_corners"])
    ones = b.op("broadcast", [b.scalar(1, dtype)], shape=at.type.shape)

    def neighbour(pixel: Value, weight: Value, slope: Value | None) -> Step:
        if padding == "reflection":
            pixel, _ = _reflected(b, pixel, *_border(extent, align))
        return step(b, pixel, extent, weight, slope, outside_counts=padding != "zeros")

    if mode == "nearest":
        return [neighbour(at, ones, None)]
    floor = b.op("floor", [at])
    frac = b.op("sub", [at, floor])
    first = 0 if mode == "linear" else -1
    found = []
    for tap in range(_TAPS[str(mode)]):
        pixel = b.op("add", [floor, b.scalar(tap + first, dtype)])
        found.append(neighbour(pixel, *_weight(b, frac, tap + first, cubic=mode == "cubic")))
    return found


def _weight(b: IRBuilder, frac: Value, shift: int, cubic: bool) -> tuple[Value, Value]:
    """The weight of the element `shift` after the one below a position, and its derivative in the position."""
    # The distance is `away` + sign * frac.
    sign, away = (1, -shift) if shift <= 0 else (-1, shift)
    distance = b.op("add", [scaled(b, frac, sign), b.scalar(away, frac.type.dtype)])
    if not cubic:
        weights = _polynomial(b, distance, (-1.0, 1.0)), _polynomial(b, distance, (-1.0,))
    elif away <= 1 and shift >= 0:
        a, c = _ALPHA + 2, _ALPHA + 3
        weights = _polynomial(b, distance, (a, -c, 0.0, 1.0)), _polynomial(b, distance, (3 * a, -2 * c, 0.0))
    else:
        a = _ALPHA
        weights = (
            _polynomial(b, distance, (a, -5 * a, 8 * a, -4 * a)),
            _polynomial(b, distance, (3 * a, -10 * a, 8 * a)),
        )
    return weights[0], scaled(b, weights[1], sign)


def _polynomial(b: IRBuilder, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial in x by Horner's scheme; coefficients of the highest power first."""
    found = b.op("broadcast", [b.scalar(coefficients[0], x.type.dtype)], shape=x.type.shape)
    for coefficient in coefficients[1:]:
        found = b.op("add", [b.op("mul", [found, x]), b.scalar(coefficient, x.type.dtype)])
    return found


register(
    OpDef(
        name="grid_sample",
        doc="Interpolated elements of x [N, C, spatial...] at the positions of grid [N, out..., axes].\n\n"
        "The grid's last axis holds coordinates for the spatial axes, last axis first, from -1 to 1. Attributes: `mode`\n"
        "(nearest, linear, cubic); `padding_mode` (zeros, border, reflection); `align_corners`: whether -1 and 1 are\n"
        "the centres of the outer elements or their edges. Operands f32 or f64. Result [N, C, out...].",
        spec="https://onnx.ai/onnx/operators/onnx__GridSample.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""deform_conv: 2-D convolution that reads each kernel element at a position of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared import bilinear
from .shared.derivatives import sum_to
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.sampling_gradient import (
    bilinear_steps,
    combine,
    image_of,
    images,
    position_gradients,
    read,
    rows_gradient,
    rows_of,
    weighted,
)
from .shared.window import integer, require_count, require_numeric, window


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 3, 4)
    require_numeric(operands)
    x, w, offset = operands[:3]
    group, offset_group = integer(attrs, "group", 1), integer(attrs, "offset_group", 1)
    if x.dtype not in (DType.F32, DType.F64):
        raise OpError(f"expected operands of f32 or f64, got {x}")
    if x.rank != 4 or w.rank != 4 or x.shape[1] != w.shape[1] * group or w.shape[0] % group or 0 in w.shape:
        raise OpError(f"expected x [N, C, H, W] and w [M, C/{group}, kH, kW], got {x} and {w}")
    if x.shape[1] % offset_group:
        raise OpError(f"expected an offset_group that divides the {x.shape[1]} channels, got {offset_group}")
    out = window(attrs, w.shape[2:], 2).output(x.shape[2:])
    taps = offset_group * math.prod(w.shape[2:])
    for tensor, channels in zip(operands[2:], (2 * taps, taps)):
        if tensor.shape != (x.shape[0], channels, *out):
            raise OpError(f"expected offsets or mask of shape {(x.shape[0], channels, *out)}, got {tensor}")
    return [x.with_shape((x.shape[0], w.shape[0], *out))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    x, w, offset = inputs[:3]
    view = window(attrs, w.shape[2:], 2)
    group, offset_group = integer(attrs, "group", 1), integer(attrs, "offset_group", 1)
    n, channels, height, width = x.shape
    kh, kw = view.kernel
    out = results[0].shape[2:]
    shift = offset.reshape(n, offset_group, kh, kw, 2, *out)
    base = [
        np.arange(view.kernel[a])[:, None] * view.dilations[a] + np.arange(out[a]) * view.strides[a] - view.low[a]
        for a in range(2)
    ]
    y = shift[..., 0, :, :] + base[0][None, None, :, None, :, None]
    column = shift[..., 1, :, :] + base[1][None, None, None, :, None, :]
    image = np.moveaxis(x.reshape(n, offset_group, channels // offset_group, height, width), 2, -1)
    lead = np.ix_(np.arange(n), np.arange(offset_group), *([np.arange(1)] * 4))[:2]
    sampled: Array = np.zeros((*y.shape, channels // offset_group), dtype=x.dtype)
    for r, c, weight in bilinear.corners(y, column, height, width):
        sampled += image[(*lead, r, c)] * weight[..., None].astype(x.dtype)
    if len(inputs) == 4:
        sampled *= inputs[3].reshape(n, offset_group, kh, kw, *out)[..., None]
    columns = np.moveaxis(sampled, -1, 2).reshape(n, group, channels // group * kh * kw, math.prod(out))
    return [np.matmul(w.reshape(group, w.shape[0] // group, -1), columns).reshape(results[0].shape)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, w = op.operands[0].type, op.operands[1].type
    view = window(op.attrs, w.shape[2:], 2)
    per_group = w.shape[0] // integer(op.attrs, "group", 1)
    per_offset = x.shape[1] // integer(op.attrs, "offset_group", 1)
    kh, kw = view.kernel

    def position(axis: int, n: Expr, tap: Expr, i: Expr, j: Expr) -> Expr:
        within = b.floordiv(b.floormod(tap, kh * kw), kw) if axis == 0 else b.floormod(tap, kw)
        start = (i, j)[axis] * view.strides[axis] + within * view.dilations[axis] - view.low[axis]
        at = b.cast(start, x.dtype) + inputs[2][n, tap * 2 + axis, i, j]
        return bilinear.bounded(b, at, x.shape[2 + axis], x.dtype)

    # Stages of their own, so that a position is worked out once however often it is used.
    shifts = op.operands[2].type.shape
    lead = TensorType(x.dtype, (shifts[0], shifts[1] // 2, *shifts[2:]))
    rows, columns = (b.compute(lead, partial(position, axis)) for axis in range(2))

    def body(n: Expr, m: Expr, i: Expr, j: Expr) -> Expr:
        def term(c: Expr, ki: Expr, kj: Expr) -> Expr:
            channel = b.floordiv(m, per_group) * w.shape[1] + c
            tap = (b.floordiv(channel, per_offset) * kh + ki) * kw + kj
            y, column = rows[n, tap, i, j], columns[n, tap, i, j]
            first, *rest = bilinear.terms(
                b, lambda r, s: inputs[0][n, channel, r, s], y, column, x.shape[2], x.shape[3], x.dtype
            )
            for part in rest:
                first = first + part
            if len(inputs) == 4:
                first = first * inputs[3][n, tap, i, j]
            return first * inputs[1][m, c, ki, kj]

        return b.reduce("sum", w.shape[1:], term)

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    return 10 * op.result.type.elements * math.prod(op.operands[1].type.shape[1:])


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads all operands; what was read of x is read again."""
    (g,) = grads
    x, w, offset = op.operands[:3]
    none: list[Value | None] = [None] * len(op.operands)
    if g is None or g.type.elements == 0:
        return none
    view = window(op.attrs, w.type.shape[2:], 2)
    group, offset_group = integer(op.attrs, "group", 1), integer(op.attrs, "offset_group", 1)
    n, channels, *extents = x.type.shape
    per_group, per_offset = channels // group, channels // offset_group
    out, taps_each = g.type.shape[2:], math.prod(view.kernel)
    lead = (n, offset_group, taps_each, *out)
    steps = []
    for axis, extent in enumerate(extents):
        taps = np.arange(taps_each) // view.kernel[1] if axis == 0 else np.arange(taps_each) % view.kernel[1]
        place = (np.arange(out[axis]) * view.strides[axis] - view.low[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
        start = (taps * view.dilations[axis])[:, None, None] + place
        at = b.op("add", [_shift(b, offset, lead, axis), b.constant(start.astype(x.type.dtype.numpy))])
        at = b.op("select", [b.op("greater", [at, b.scalar(-2, x.type.dtype)]), at, b.scalar(-2, x.type.dtype)])
        steps.append(bilinear_steps(b, b.op("min", [at, b.scalar(extent + 1, x.type.dtype)]), extent))
    taps_found = combine(b, images(b, lead, 2), steps, extents)
    parted = (n, offset_group, per_offset, *extents)
    rows = rows_of(b, b.op("reshape", [x], shape=parted), 2)
    sampled = read(b, rows, taps_found)
    mask = b.op("reshape", [op.operands[3]], shape=lead) if len(op.operands) == 4 else None
    masked = sampled if mask is None else weighted(b, sampled, mask)

    # The convolution proper is a matrix product of [M / group, C / group * taps] and [C / group * taps, pixels].
    depth, pixels = per_group * taps_each, math.prod(out)
    columns = b.op("transpose", [masked], perm=(0, 1, 5, 2, 3, 4))
    columns = b.op("reshape", [columns], shape=(n, group, depth, pixels))
    filters = b.op("reshape", [w], shape=(group, w.type.shape[0] // group, depth))
    flowing = b.op("reshape", [g], shape=(n, group, w.type.shape[0] // group, pixels))
    of_w = sum_to(b, b.op("matmul", [flowing, columns], transpose_a=False, transpose_b=True), filters.type)
    of_columns = b.op("matmul", [filters, flowing], transpose_a=True, transpose_b=False)
    of_masked = b.op("reshape", [of_columns], shape=(n, offset_group, per_offset, taps_each, *out))
    of_masked = b.op("transpose", [of_masked], perm=(0, 1, 3, 4, 5, 2))
    of_sampled = of_masked if mask is None else weighted(b, of_masked, mask)
    of_rows = rows_gradient(b, of_sampled, taps_found, rows.type.shape[0])
    of_x = b.op("reshape", [image_of(b, of_rows, parted, 2)], shape=x.type.shape)
    shifts = [of for of in position_gradients(b, of_sampled, rows, taps_found) if of is not None]
    pairs = b.op("concat", [b.op("reshape", [s], shape=(*lead[:3], 1, *out)) for s in shifts], axis=3)
    found = [of_x, b.op("reshape", [of_w], shape=w.type.shape), b.op("reshape", [pairs], shape=offset.type.shape)]
    if mask is None:
        return found
    of_mask = b.op("reduce_sum", [b.op("mul", [of_masked, sampled])], axes=(5,), keepdims=False)
    return [*found, b.op("reshape", [of_mask], shape=op.operands[3].type.shape)]


def _shift(b: IRBuilder, offset: Value, lead: tuple[int, ...], axis: int) -> Value:
    """The offsets along one axis, [images, offset groups, taps, out...]."""
    pairs = b.op("reshape", [offset], shape=(*lead[:3], 2, *lead[3:]))
    starts, stops = (0, 0, 0, axis, 0, 0), (*lead[:3], axis + 1, *lead[3:])
    return b.op("reshape", [b.op("slice", [pairs], starts=starts, stops=stops, steps=(1,) * 6)], shape=lead)


register(
    OpDef(
        name="deform_conv",
        doc="2-D convolution whose kernel elements are read at shifted positions, bilinearly, zeros outside.\n\n"
        "Operands (f32 or f64): x [N, C, H, W]; w [M, C/group, kH, kW]; offset [N, offset_group * kH * kW * 2, outH, outW]\n"
        "(row shift, then column shift per kernel element); optionally a mask [N, offset_group * kH * kW, outH, outW] that\n"
        "scales each read. Attributes as conv's, and `offset_group`: groups of channels with offsets of their own.",
        spec="https://onnx.ai/onnx/operators/onnx__DeformConv.html",
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

# SPDX-License-Identifier: Apache-2.0
"""conv_grad_weight: the gradient of a convolution in its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .library.cpu import CONV2D_GRAD_WEIGHT_CPU
from .library.cuda_conv import CONV_GRAD_WEIGHT_CUDA
from .shared.casts import cast
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.window import (
    accumulator,
    conv_attrs,
    integer,
    padded,
    positions,
    read,
    require_count,
    require_numeric,
    strided,
    window,
)


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 2)
    require_numeric(operands)
    x, g = operands
    if x.rank < 3 or g.rank != x.rank or g.shape[0] != x.shape[0]:
        raise OpError(f"expected x [N, C, spatial...] and a gradient [N, M, out...] of its rank, got {x} and {g}")
    group = integer(attrs, "group", 1)
    if x.shape[1] % group or g.shape[1] % group:
        raise OpError(f"expected a group that divides {x.shape[1]} and {g.shape[1]} channels, got {group}")
    view = window(attrs, None, x.rank - 2)
    most = view.output(x.shape[2:])
    if any(n > m for n, m in zip(g.shape[2:], most)):
        raise OpError(f"expected a gradient of at most {list(most)} windows, got {g}")
    return [TensorType(accumulator(x.dtype), (g.shape[1], x.shape[1] // group, *view.kernel))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (result,) = results
    x, g = (v.astype(result.dtype.numpy, copy=False) for v in inputs)
    group = integer(attrs, "group", 1)
    view = window(attrs, None, x.ndim - 2)
    out = g.shape[2:]
    left = _by_group(g, group)
    x = padded(x, view, 0)
    y = np.empty(result.shape, dtype=x.dtype)
    for position in positions(view.kernel):
        right = _by_group(strided(x, view, position, out), group)
        at: tuple[slice | int, ...] = (slice(None), slice(None), *position)
        y[at] = np.matmul(left, right.swapaxes(1, 2)).reshape(result.shape[:2])
    return [y]


def _by_group(x: Array, group: int) -> Array:
    """[N, C, spatial...] as [group, C / group, N * spatial]."""
    n, channels = x.shape[:2]
    parts = x.reshape(n, group, channels // group, math.prod(x.shape[2:]))
    return np.moveaxis(parts, 0, 2).reshape(group, channels // group, -1)


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, g = (v.type for v in op.operands)
    dtype = op.result.type.dtype
    group = integer(op.attrs, "group", 1)
    per_group, channels = g.shape[1] // group, x.shape[1] // group
    view = window(op.attrs, None, x.rank - 2)

    def body(m: Expr, c: Expr, *taps: Expr) -> Expr:
        channel = b.floordiv(m, per_group) * channels + c if group > 1 else c

        def term(n: Expr, *at: Expr) -> Expr:
            value = read(b, inputs[0], x.shape[2:], view, (n, channel), at, taps, b.const(0, x.dtype))
            return b.cast(value, dtype) * b.cast(inputs[1][(n, m, *at)], dtype)

        return b.reduce("sum", (g.shape[0], *g.shape[2:]), term)

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    return 2 * op.operands[1].type.elements * math.prod(op.result.type.shape[1:])


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (d,) = grads
    if d is None:
        return [None, None]
    x, g = (cast(b, v, d.type.dtype) for v in op.operands)
    attrs = conv_attrs(op)
    view = window(op.attrs, None, x.type.rank - 2)
    of_x = b.op(
        "conv_transpose", [g, d], **attrs, output_padding=left_over(x.type.shape[2:], g.type.shape[2:], op.attrs)
    )
    of_g = b.op("conv", [x, d], **attrs)
    if view.output(x.type.shape[2:]) != g.type.shape[2:]:
        of_g = b.op("slice", [of_g], starts=(0,) * g.type.rank, stops=g.type.shape, steps=(1,) * g.type.rank)
    return [cast(b, of_x, op.operands[0].type.dtype), cast(b, of_g, op.operands[1].type.dtype)]


def left_over(spatial: Sequence[int], out: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
    """Elements of each padded spatial axis after the last of `out` windows: a transposed convolution's output padding."""
    view = window(attrs, None, len(spatial))
    return tuple(
        n + low + high - s * (o - 1) - d * (k - 1) - 1
        for n, low, high, s, o, d, k in zip(
            spatial, view.low, view.high, view.strides, out, view.dilations, view.kernel
        )
    )


register(
    OpDef(
        name="conv_grad_weight",
        doc="The gradient of conv in its weights, from its x [N, C, spatial...] and the gradient g [N, M, out...] in its\n"
        "result: w[m, c, tap...] = sum over n and out of g[n, m, out] * x[n, c, out * stride + tap * dilation - pad].\n\n"
        "Attributes: `kernel`, and those of conv. The result is [M, C/group, kernel...]; g may have fewer windows than\n"
        "conv makes of x. f16 and bf16 operands accumulate in f32 and give an f32 result.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(CONV2D_GRAD_WEIGHT_CPU, CONV_GRAD_WEIGHT_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""conv: convolution (cross-correlation) over any number of spatial axes, in groups, with an optional bias."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .conv_grad_weight import left_over
from .library.cpu import CONV2D_CPU, DEPTHWISE_CONV2D_CPU, PACKED_CONV2D_CPU
from .library.cuda_conv import CONV_CUDA
from .matmul import exact_product
from .shared.casts import cast
from .shared.derivatives import sum_to
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.window import (
    Window,
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
    windows_of,
)
from .slice import spread_out


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 2, 3)
    require_numeric(operands)
    x, w = operands[0], operands[1]
    if x.rank < 3 or w.rank != x.rank:
        raise OpError(f"expected x [N, C, spatial...] and w of the same rank, at least 3, got {x} and {w}")
    group = integer(attrs, "group", 1)
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group or 0 in w.shape:
        raise OpError(
            f"expected w [M, C/{group}, kernel...] with M a multiple of the group {group} and C = {x.shape[1]}, got {w}"
        )
    if len(operands) == 3 and operands[2].shape != w.shape[:1]:
        raise OpError(f"expected a bias [{w.shape[0]}], got {operands[2]}")
    out = window(attrs, w.shape[2:], x.rank - 2).output(x.shape[2:])
    return [TensorType(accumulator(x.dtype), (x.shape[0], w.shape[0], *out))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    dtype = results[0].dtype.numpy
    x, w = (v.astype(dtype, copy=False) for v in inputs[:2])
    group = integer(attrs, "group", 1)
    view = window(attrs, w.shape[2:], x.ndim - 2)
    out = results[0].shape[2:]
    if w.shape[1] == 1:
        y = _depthwise(x, w, view, out, group)
    else:
        y = _im2col(x, w, view, out, group)
    y = y.reshape(results[0].shape)
    if len(inputs) == 3:
        y = y + inputs[2].astype(dtype, copy=False).reshape(1, -1, *([1] * len(out)))
    return [y.astype(dtype, copy=False)]


def _depthwise(x: Array, w: Array, view: Window, out: Sequence[int], group: int) -> Array:
    """One input channel per group: a multiply-add per kernel position, without im2col."""
    n, multiplier = x.shape[0], w.shape[0] // group
    x = padded(x, view, 0)
    y = np.zeros((n, group, multiplier, *out), dtype=x.dtype)
    spread = [1] * len(out)
    for position in positions(view.kernel):
        at: tuple[slice | int, ...] = (slice(None), 0, *position)
        weights = w[at].reshape(1, group, multiplier, *spread)
        y += strided(x, view, position, out)[:, :, None] * weights
    return y


def _im2col(x: Array, w: Array, view: Window, out: Sequence[int], group: int) -> Array:
    n, rank = x.shape[0], len(out)
    depth = math.prod(w.shape[1:])
    patches = windows_of(x, view, 0)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    columns = patches.transpose(order).reshape(n, group, depth, math.prod(out))
    return exact_product(w.reshape(group, w.shape[0] // group, depth), columns, depth)


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, w = op.operands[0].type, op.operands[1].type
    dtype = op.result.type.dtype
    per_group, channels = w.shape[0] // integer(op.attrs, "group", 1), w.shape[1]
    view = window(op.attrs, w.shape[2:], x.rank - 2)

    def body(n: Expr, m: Expr, *at: Expr) -> Expr:
        base = b.floordiv(m, per_group) * channels if w.shape[0] != per_group else None

        def term(c: Expr, *taps: Expr) -> Expr:
            channel = c if base is None else base + c
            value = read(b, inputs[0], x.shape[2:], view, (n, channel), at, taps, b.const(0, x.dtype))
            product = b.cast(value, dtype) * b.cast(inputs[1][(m, c, *taps)], dtype)
            if len(inputs) < 3:
                return product
            # A kernel is one reduction with nothing around it, so the bias enters with the first term.
            first = b.logical_and(*(b.equal(k, 0) for k in (c, *taps)))
            return product + b.select(first, b.cast(inputs[2][m], dtype), b.const(0, dtype))

        return b.reduce("sum", w.shape[1:], term)

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    return op.result.type.elements * (2 * math.prod(op.operands[1].type.shape[1:]) + (len(op.operands) == 3))


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x and w. The bias sums up all that comes, so that neither needs it."""
    (g,) = grads
    if g is None:
        return [None] * len(op.operands)
    x, w = (cast(b, v, g.type.dtype) for v in op.operands[:2])
    of_x, of_w = (_of_picked if _picks(op) else _of_windows)(b, op, x, w, g)
    found = [cast(b, of_x, op.operands[0].type.dtype), cast(b, of_w, op.operands[1].type.dtype)]
    return [*found, *(bias_gradient(b, g, v.type) for v in op.operands[2:])]


def _of_windows(b: IRBuilder, op: Op, x: Value, w: Value, g: Value) -> tuple[Value, Value]:
    attrs = conv_attrs(op)
    kernel = w.type.shape[2:]
    extra = left_over(x.type.shape[2:], g.type.shape[2:], {**attrs, "kernel": kernel})
    of_x = b.op("conv_transpose", [g, w], **attrs, output_padding=extra)
    return of_x, b.op("conv_grad_weight", [x, g], **attrs, kernel=kernel)


def _picks(op: Op) -> bool:
    """Whether the windows are single elements with others between them."""
    x, w = (v.type for v in op.operands[:2])
    view = window(op.attrs, w.shape[2:], x.rank - 2)
    return math.prod(view.kernel) == 1 and not any((*view.low, *view.high)) and max(view.strides) > 1


def _of_picked(b: IRBuilder, op: Op, x: Value, w: Value, g: Value) -> tuple[Value, Value]:
    """The gradients of a dense convolution of the elements that are read, and zeros for the others: those are no work for
    the convolution's own kernels, and may be written by whatever adds to the gradient next."""
    rank = x.type.rank - 2
    kernel = w.type.shape[2:]
    attrs = {**conv_attrs(op), "strides": (1,) * rank, "dilations": (1,) * rank}
    steps = (1, 1, *window(op.attrs, kernel, rank).strides)
    picked = b.op("slice", [x], starts=(0,) * x.type.rank, stops=x.type.shape, steps=steps)
    of_picked = b.op("conv_transpose", [g, w], **attrs, output_padding=(0,) * rank)
    of_w = b.op("conv_grad_weight", [picked, g], **attrs, kernel=kernel)
    source = op.operands[0].type
    return spread_out(b, cast(b, of_picked, source.dtype), source, (0,) * source.rank, steps), of_w


def bias_gradient(b: IRBuilder, g: Value, bias: TensorType) -> Value:
    """The gradient in a bias [M] that was added to every pixel of [N, M, out...]."""
    column = sum_to(b, g, TensorType(g.type.dtype, (bias.shape[0], *[1] * (g.type.rank - 2))))
    return cast(b, b.op("reshape", [column], shape=bias.shape), bias.dtype)


register(
    OpDef(
        name="conv",
        doc="Convolution of x [N, C, spatial...] with w [M, C/group, kernel...], plus an optional bias [M].\n\n"
        "Attributes: `strides`, `dilations`: one integer per spatial axis; `pads`: zeros before each spatial axis, then\n"
        "after each; `group`: channel groups that do not mix. Result [N, M, out...]; f16 and bf16 operands accumulate\n"
        "in f32 and give an f32 result, other types their own.",
        spec="https://onnx.ai/onnx/operators/onnx__Conv.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(DEPTHWISE_CONV2D_CPU, CONV2D_CPU, PACKED_CONV2D_CPU, CONV_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)

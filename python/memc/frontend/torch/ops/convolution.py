# SPDX-License-Identifier: Apache-2.0
"""Convolutions, also transposed ones."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast

from ..context import NodeContext, converts
from .layout import padded
from .views import reshaped


def spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """One integer per spatial axis, of which one may stand for all."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _batched(ctx: NodeContext, name: str, rank: int) -> tuple[Value, bool]:
    """The input [N, C, spatial...], and whether it had no N."""
    x = ctx.value(name)
    if x.type.rank == rank + 1:
        return reshaped(ctx.b, x, (1, *x.type.shape)), True
    return x, False


def _finish(ctx: NodeContext, y: Value, dtype_of: Value, one: bool) -> Value:
    y = cast(ctx.b, y, dtype_of.type.dtype)
    return reshaped(ctx.b, y, y.type.shape[1:]) if one else y


def convolved(ctx: NodeContext, pads: tuple[Sequence[int], Sequence[int]], input: str = "input") -> Value:
    """A convolution with zeros before and after each spatial axis."""
    w = ctx.value("weight")
    rank = w.type.rank - 2
    x, one = _batched(ctx, input, rank)
    operands = [x, w, *([ctx.value("bias")] if ctx.has("bias") else [])]
    y = ctx.b.op(
        "conv",
        operands,
        strides=spread(ctx.ints("stride", [1]), rank),
        pads=(*pads[0], *pads[1]),
        dilations=spread(ctx.ints("dilation", [1]), rank),
        group=int(ctx.get("groups", 1)),
    )
    return _finish(ctx, y, x, one)


@converts("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def conv(ctx: NodeContext) -> Value:
    pads = spread(ctx.ints("padding", [0]), ctx.value("weight").type.rank - 2)
    return convolved(ctx, (pads, pads))


@converts("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_padding(ctx: NodeContext) -> Value:
    kernel = ctx.value("weight").type.shape[2:]
    if ctx.get("padding", "valid") == "valid":
        return convolved(ctx, ((0,) * len(kernel), (0,) * len(kernel)))
    dilations = spread(ctx.ints("dilation", [1]), len(kernel))
    totals = [d * (k - 1) for d, k in zip(dilations, kernel)]
    return convolved(ctx, ([t // 2 for t in totals], [t - t // 2 for t in totals]))


def _transposed(ctx: NodeContext) -> Value:
    w = ctx.value("weight")
    rank = w.type.rank - 2
    x, one = _batched(ctx, "input", rank)
    pads = spread(ctx.ints("padding", [0]), rank)
    operands = [x, w, *([ctx.value("bias")] if ctx.has("bias") else [])]
    y = ctx.b.op(
        "conv_transpose",
        operands,
        strides=spread(ctx.ints("stride", [1]), rank),
        pads=(*pads, *pads),
        dilations=spread(ctx.ints("dilation", [1]), rank),
        output_padding=spread(ctx.ints("output_padding", [0]), rank),
        group=int(ctx.get("groups", 1)),
    )
    return _finish(ctx, y, x, one)


@converts("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(ctx: NodeContext) -> Value:
    return _transposed(ctx)


@converts("aten.convolution.default")
def convolution(ctx: NodeContext) -> Value:
    if ctx.get("transposed", False):
        return _transposed(ctx)
    pads = spread(ctx.ints("padding", [0]), ctx.value("weight").type.rank - 2)
    return convolved(ctx, (pads, pads))


@converts("aten.im2col.default")
def im2col(ctx: NodeContext) -> Value:
    """Patches as columns: [N, C * kernel, blocks]."""
    import numpy as np

    b, x, rank = ctx.b, ctx.value("self"), 2
    kernel, dilation, pads, stride = (
        spread(ctx.ints(name), rank) for name in ("kernel_size", "dilation", "padding", "stride")
    )
    x = padded(ctx, x, (pads[1], pads[1], pads[0], pads[0]))
    n, c, *spatial = x.type.shape
    counts = [(s - d * (k - 1) - 1) // t + 1 for s, d, k, t in zip(spatial, dilation, kernel, stride)]
    for axis in (2, 4):  # The first spatial axis has become two by the second time.
        which = 0 if axis == 2 else 1
        at = np.arange(kernel[which])[:, None] * dilation[which] + np.arange(counts[which]) * stride[which]
        x = b.op("gather", [x, b.constant(at.astype(np.int64))], axis=axis)
    turned = b.op("transpose", [x], perm=(0, 1, 2, 4, 3, 5))
    return reshaped(b, turned, (n, c * kernel[0] * kernel[1], counts[0] * counts[1]))


@converts("aten.col2im.default")
def col2im(ctx: NodeContext) -> Value:
    kernel, dilation, pads, stride = (
        spread(ctx.ints(name), 2) for name in ("kernel_size", "dilation", "padding", "stride")
    )
    return ctx.b.op(
        "col2im",
        [ctx.value("self")],
        shape=tuple(ctx.ints("output_size")),
        kernel=kernel,
        strides=stride,
        pads=(*pads, *pads),
        dilations=dilation,
    )

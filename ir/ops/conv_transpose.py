# SPDX-License-Identifier: Apache-2.0
"""conv_transpose and col2im: sums of overlapping patches, in gather form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .conv import bias_gradient
from .library.cpu import CONV2D_TRANSPOSE_CPU
from .library.cuda_conv import CONV_TRANSPOSE_CUDA
from .matmul import exact_product
from .shared.casts import cast
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.window import (
    Window,
    accumulator,
    conv_attrs,
    cover_extents,
    covering,
    int_tuple,
    integer,
    positions,
    require_count,
    require_numeric,
    window,
)


def _scatter(patches: Array, view: Window, out: Sequence[int]) -> Array:
    """Add patches [N, C, kernel..., in...] up into [N, C, out...]."""
    extents = patches.shape[2 + view.rank :]
    reach = [
        d * (k - 1) + s * max(i - 1, 0) + 1 for d, k, s, i in zip(view.dilations, view.kernel, view.strides, extents)
    ]
    full = [max(r, low + o) for r, low, o in zip(reach, view.low, out)]
    total = np.zeros((*patches.shape[:2], *full), dtype=patches.dtype)
    for position in positions(view.kernel):
        picks = [
            slice(p * d, p * d + s * (i - 1) + 1 if i else p * d, s)
            for p, d, s, i in zip(position, view.dilations, view.strides, extents)
        ]
        at: tuple[slice | int, ...] = (slice(None), slice(None), *position)
        total[(slice(None), slice(None), *picks)] += patches[at]
    crop = [slice(low, low + o) for low, o in zip(view.low, out)]
    return np.ascontiguousarray(total[(slice(None), slice(None), *crop)])


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 2, 3)
    require_numeric(operands)
    x, w = operands[0], operands[1]
    if x.rank < 3 or w.rank != x.rank:
        raise OpError(f"expected x [N, C, spatial...] and w of the same rank, at least 3, got {x} and {w}")
    rank = x.rank - 2
    group = integer(attrs, "group", 1)
    if x.shape[1] != w.shape[0] or x.shape[1] % group or 0 in w.shape:
        raise OpError(f"expected w [{x.shape[1]}, M/group, kernel...] and a group that divides {x.shape[1]}, got {w}")
    channels = w.shape[1] * group
    if len(operands) == 3 and operands[2].shape != (channels,):
        raise OpError(f"expected a bias [{channels}], got {operands[2]}")
    view = window(attrs, w.shape[2:], rank)
    extra = int_tuple(attrs, "output_padding", rank, 0)
    out = tuple(
        s * (i - 1) + e + d * (k - 1) + 1 - low - high
        for s, i, e, d, k, low, high in zip(
            view.strides, x.shape[2:], extra, view.dilations, view.kernel, view.low, view.high
        )
    )
    if any(o < 0 for o in out):
        raise OpError(f"expected pads that leave a result, got {attrs.get('pads')} for x {x} and w {w}")
    return [TensorType(accumulator(x.dtype), (x.shape[0], channels, *out))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    dtype = results[0].dtype.numpy
    x, w = (v.astype(dtype, copy=False) for v in inputs[:2])
    group = integer(attrs, "group", 1)
    view = window(attrs, w.shape[2:], x.ndim - 2)
    n, per_group = x.shape[0], x.shape[1] // group
    left = w.reshape(group, per_group, -1).swapaxes(1, 2)
    right = x.reshape(n, group, per_group, math.prod(x.shape[2:]))
    patches = exact_product(left, right, per_group).reshape(n, group * w.shape[1], *view.kernel, *x.shape[2:])
    y = _scatter(patches, view, results[0].shape[2:])
    if len(inputs) == 3:
        y += inputs[2].astype(dtype, copy=False).reshape(1, -1, *([1] * view.rank))
    return [y]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x, w = op.operands[0].type, op.operands[1].type
    dtype = op.result.type.dtype
    group = integer(op.attrs, "group", 1)
    view = window(op.attrs, w.shape[2:], x.rank - 2)
    per_group, made = x.shape[1] // group, w.shape[1]

    def body(n: Expr, m: Expr, *at: Expr) -> Expr:
        def term(c: Expr, *steps: Expr) -> Expr:
            channel = b.floordiv(m, made) * per_group + c if group > 1 else c
            index, taps, there = covering(b, view, at, steps, x.shape[2:])
            filter_m = b.floormod(m, made) if group > 1 else m
            value = b.cast(inputs[0][(n, channel, *index)], dtype)
            weight = b.cast(inputs[1][(channel, filter_m, *taps)], dtype)
            product = b.select(there, value * weight, b.const(0, dtype))
            if len(inputs) < 3:
                return product
            # A kernel is one reduction with nothing around it, so the bias enters with the first term.
            first = b.logical_and(*(b.equal(k, 0) for k in (c, *steps)))
            return product + b.select(first, b.cast(inputs[2][m], dtype), b.const(0, dtype))

        return b.reduce("sum", (per_group, *cover_extents(view)), term)

    return [b.compute(op.result.type, body)]


def flops(op: Op) -> int:
    x, w = op.operands[0].type, op.operands[1].type
    bias = op.result.type.elements if len(op.operands) == 3 else 0
    return 2 * x.elements * math.prod(w.shape[1:]) + bias


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x and w."""
    (g,) = grads
    if g is None:
        return [None] * len(op.operands)
    x, w = (cast(b, v, g.type.dtype) for v in op.operands[:2])
    attrs = conv_attrs(op)
    of_x = b.op("conv", [g, w], **attrs)
    if of_x.type.shape != x.type.shape:  # A large output padding has room for more windows.
        rank = x.type.rank
        of_x = b.op("slice", [of_x], starts=(0,) * rank, stops=x.type.shape, steps=(1,) * rank)
    of_w = b.op("conv_grad_weight", [g, x], **attrs, kernel=w.type.shape[2:])
    found = [cast(b, of_x, op.operands[0].type.dtype), cast(b, of_w, op.operands[1].type.dtype)]
    return [*found, *(bias_gradient(b, g, v.type) for v in op.operands[2:])]


register(
    OpDef(
        name="conv_transpose",
        doc="Transposed convolution of x [N, C, spatial...] with w [C, M/group, kernel...], plus an optional bias [M].\n\n"
        "Attributes: `strides`, `dilations`, `output_padding`: one integer per spatial axis; `pads`: elements cropped\n"
        "before each spatial axis, then after each; `group`: channel groups that do not mix. Result [N, M, out...] with\n"
        "out = stride * (in - 1) + output_padding + dilation * (kernel - 1) + 1 - pads. f16 and bf16 operands\n"
        "accumulate in f32 and give an f32 result.",
        spec="https://onnx.ai/onnx/operators/onnx__ConvTranspose.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(CONV2D_TRANSPOSE_CPU, CONV_TRANSPOSE_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)


def col2im_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    require_numeric(operands)
    (x,) = operands
    shape = attrs.get("shape")
    rank = len(shape) if isinstance(shape, tuple) else 0
    image = int_tuple(attrs, "shape", rank, 1)
    view = window(attrs, None, rank)
    blocks = math.prod(view.output(image))
    if rank == 0 or x.rank != 3 or x.shape[1] % math.prod(view.kernel) or x.shape[2] != blocks:
        raise OpError(f"expected x [N, C * {math.prod(view.kernel)}, {blocks}] for an image {image}, got {x}")
    return [TensorType(accumulator(x.dtype), (x.shape[0], x.shape[1] // math.prod(view.kernel), *image))]


def col2im_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    image = results[0].shape[2:]
    view = window(attrs, None, len(image))
    x = inputs[0].astype(results[0].dtype.numpy, copy=False)
    patches = x.reshape(*results[0].shape[:2], *view.kernel, *view.output(image))
    return [_scatter(patches, view, image)]


def col2im_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The patches of the gradient: one strided slice for each tap."""
    (g,) = grads
    if g is None:
        return [None]
    x, (n, channels, *image) = op.operands[0].type, g.type.shape
    view = window(op.attrs, None, len(image))
    blocks = view.output(image)
    if any(view.low + view.high):
        low, high = (0, 0, *view.low), (0, 0, *view.high)
        g = b.op("pad", [g], low=low, high=high, mode="constant", value=0.0)
    parts = []
    for position in positions(view.kernel):
        first = tuple(p * d for p, d in zip(position, view.dilations))
        last = tuple(f + s * (o - 1) + 1 for f, s, o in zip(first, view.strides, blocks))
        part = b.op("slice", [g], starts=(0, 0, *first), stops=(n, channels, *last), steps=(1, 1, *view.strides))
        parts.append(b.op("reshape", [part], shape=(n, channels, 1, math.prod(blocks))))
    patches = b.op("concat", parts, axis=2) if len(parts) > 1 else parts[0]
    return [cast(b, b.op("reshape", [patches], shape=x.shape), x.dtype)]


def col2im_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    result = op.result.type
    view = window(op.attrs, None, result.rank - 2)
    blocks = view.output(result.shape[2:])

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        def term(*steps: Expr) -> Expr:
            index, taps, there = covering(b, view, at, steps, blocks)
            row: Expr = c
            column: Expr | int = 0
            for tap, extent in zip(taps, view.kernel):
                row = row * extent + tap
            for i, extent in zip(index, blocks):
                column = column * extent + i
            zero = b.const(0, op.operands[0].type.dtype)
            return b.cast(b.select(there, inputs[0][n, row, column], zero), result.dtype)

        return b.reduce("sum", cover_extents(view), term)

    return [b.compute(result, body)]


register(
    OpDef(
        name="col2im",
        doc="Sums the patches x [N, C * prod(kernel), blocks] into an image [N, C, shape...]; the inverse of im2col.\n\n"
        "Attributes: `shape`: the image's spatial extents; `kernel`, `strides`, `dilations`: one integer per spatial\n"
        "axis; `pads`: padding of the image that the patches cover, before each axis, then after each. f16 and bf16\n"
        "accumulate in f32 and give an f32 result.",
        spec="https://onnx.ai/onnx/operators/onnx__Col2Im.html",
        infer=col2im_infer,
        evaluate=col2im_evaluate,
        gradient=col2im_gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: op.operands[0].type.elements,
        lower=Compute(col2im_lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

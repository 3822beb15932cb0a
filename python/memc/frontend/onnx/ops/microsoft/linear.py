# SPDX-License-Identifier: Apache-2.0
"""Linear quantization per tensor: real = (integer - zero point) * scale. What the importers of QLinear ops write with."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import NodeContext

SMALL = (DType.U8, DType.I8)
"""Element types of quantized tensors."""


def require_small(ctx: NodeContext, *indices: int) -> DType:
    """The 8-bit type of the inputs given, which must be one. Raises UnsupportedError."""
    first = ctx.type(indices[0]).dtype
    for index in indices:
        if ctx.has(index) and (ctx.type(index).dtype is not first or first not in SMALL):
            raise ctx.unsupported(f"expected u8 or i8 like input {indices[0]} as input {index}, got {ctx.type(index)}")
    return first


def number(ctx: NodeContext, index: int) -> Value:
    """Input `index`, of one element, as a value of rank 0. Raises UnsupportedError for more elements."""
    given = ctx.type(index)
    if given.elements != 1:
        raise ctx.unsupported(f"expected one element for the whole tensor as input {index}, got {given}")
    value = ctx.value(index)
    return value if given.rank == 0 else ctx.b.op("reshape", [value], shape=())


def ratio(
    ctx: NodeContext, above: Sequence[int], below: Sequence[int] = (), factor: float = 1.0, count: int = 1
) -> Value:
    """`factor` times the product of the scales `above`, over `count` times that of those `below`, in f32 and in this
    sequence, as onnxruntime has it; known if the scales are."""
    b = ctx.b
    for index in (*above, *below):
        if ctx.type(index).dtype is not DType.F32:
            raise ctx.unsupported(f"expected a scale of type f32 as input {index}, got {ctx.type(index)}")
    known = [ctx.known(i) for i in (*above, *below)]
    if all(k is not None and k.size == 1 for k in known):
        arrays = [k.reshape(-1)[0] for k in known if k is not None]
        with np.errstate(all="ignore"):
            top = np.multiply.reduce([np.float32(factor), *arrays[: len(above)]], dtype=np.float32)
            bottom = np.multiply.reduce([*arrays[len(above) :], np.float32(count)], dtype=np.float32)
            return b.scalar(float(top / bottom), DType.F32)

    def product(indices: Sequence[int], number_too: float) -> Value | None:
        values = [number(ctx, i) for i in indices] + ([] if number_too == 1 else [b.scalar(number_too, DType.F32)])
        return functools.reduce(lambda x, y: b.op("mul", [x, y]), values) if values else None

    top_value, bottom_value = product(above, factor), product(below, count)
    assert top_value is not None
    return top_value if bottom_value is None else b.op("div", [top_value, bottom_value])


def centred(ctx: NodeContext, data: int, zero: int, to: DType = DType.I32) -> Value:
    """Input `data` minus its zero point, input `zero` if given, as `to`: i32 or f32, where this is exact."""
    x = cast(ctx.b, ctx.value(data), to)
    known = ctx.known(zero)
    if not ctx.has(zero) or (known is not None and not known.any()):
        return x
    return ctx.b.op("sub", [x, cast(ctx.b, number(ctx, zero), to)])


def real(ctx: NodeContext, data: int, scale: int, zero: int) -> Value:
    """Input `data` as the f32 that it stands for."""
    return ctx.b.op("mul", [centred(ctx, data, zero, DType.F32), ratio(ctx, [scale])])


def saturated(ctx: NodeContext, x: Value, zero: int, to: DType, shifted: bool = False) -> Value:
    """`x`, f32 in units of the result's scale, rounded half to even, plus the zero point, input `zero` if given.

    `shifted`: rounded after adding the zero point, which ends elsewhere halfway between two integers if that is odd.
    onnxruntime's kernels do one or the other, op by op.
    """
    b = ctx.b
    shift = cast(b, number(ctx, zero), DType.F32) if ctx.has(zero) else None
    known = ctx.known(zero)
    if known is not None and not known.any():
        shift = None
    for step in ("add", "round") if shifted else ("round", "add"):
        if step == "round":
            x = b.op("round", [x])
        elif shift is not None:
            x = b.op("add", [x, shift])
    limits = np.iinfo(to.numpy)
    return cast(b, b.op("clip", [x], min=float(limits.min), max=float(limits.max)), to)


def quantized(ctx: NodeContext, x: Value, scale: int, zero: int, to: DType) -> Value:
    """The real `x` as integers, with the scale and zero point of these inputs."""
    return saturated(ctx, ctx.b.op("div", [x, ratio(ctx, [scale])]), zero, to)

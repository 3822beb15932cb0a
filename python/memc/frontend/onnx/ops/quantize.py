# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear, for 8, 16 and 32 bit integers: per tensor, per axis and blocked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from .reduction import resolve_axis

_ELEMENT_TYPES = {
    1: DType.F32,
    2: DType.U8,
    3: DType.I8,
    4: DType.U16,
    5: DType.I16,
    6: DType.I32,
    10: DType.F16,
    11: DType.F64,
    16: DType.BF16,
}
"""IR types by ONNX element type number, of those that quantization uses."""


def _type_attr(ctx: NodeContext, name: str) -> DType | None:
    number = int(ctx.attr(name, 0))
    if number == 0:
        return None
    if number not in _ELEMENT_TYPES:
        raise ctx.unsupported(f"{name} {number}")
    return _ELEMENT_TYPES[number]


def spread(ctx: NodeContext, index: int) -> Value:
    """Scale or zero point (input `index`) shaped to broadcast against input 0."""
    b, given = ctx.b, ctx.value(index)
    shape, target = given.type.shape, ctx.type(0).shape
    if given.type.elements == 1:
        return given if given.type.rank == 0 else b.op("reshape", [given], shape=())
    axis = resolve_axis(ctx, ctx.attr("axis", 1), len(target))
    block = int(ctx.attr("block_size", 0))
    if not block:
        if given.type.rank != 1 or shape[0] != target[axis]:
            raise ctx.unsupported(f"expected a scale and zero point of shape [{target[axis]}], got {given.type}")
        return b.op("reshape", [given], shape=tuple(shape[0] if d == axis else 1 for d in range(len(target))))
    if len(shape) != len(target) or shape[axis] * block < target[axis]:
        raise ctx.unsupported(f"expected a scale of rank {len(target)} with blocks of {block}, got {given.type}")
    apart = b.op("reshape", [given], shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    repeated = b.op("broadcast", [apart], shape=(*shape[: axis + 1], block, *shape[axis + 1 :]))
    whole = tuple(n * block if d == axis else n for d, n in enumerate(shape))
    joined = b.op("reshape", [repeated], shape=whole)
    if whole == target:
        return joined
    return b.op("slice", [joined], starts=(0,) * len(target), stops=target, steps=(1,) * len(target))


@imports("QuantizeLinear")
def quantize_linear(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    to = ctx.type(2).dtype if ctx.has(2) else _type_attr(ctx, "output_dtype") or DType.U8
    if not to.is_integer or to.itemsize > 2:
        raise ctx.unsupported(f"quantization to {to.value}")
    scale = spread(ctx, 1)
    precision = _type_attr(ctx, "precision") or scale.type.dtype
    x = b.op("div", [cast(b, ctx.value(0), precision), cast(b, scale, precision)])
    # Half precision cannot hold a sum with a 16 bit zero point.
    x = cast(b, b.op("round", [x]), DType.F64 if precision is DType.F64 else DType.F32)
    if ctx.has(2):
        x = b.op("add", [x, cast(b, spread(ctx, 2), x.type.dtype)])
    limits = np.iinfo(to.numpy)
    return [cast(b, b.op("clip", [x], min=float(limits.min), max=float(limits.max)), to)]


@imports("DequantizeLinear")
def dequantize_linear(ctx: NodeContext) -> Sequence[Known]:
    b = ctx.b
    x = cast(b, ctx.value(0), DType.F32)
    if ctx.has(2):
        x = b.op("sub", [x, cast(b, spread(ctx, 2), DType.F32)])
    to = _type_attr(ctx, "output_dtype") or ctx.type(1).dtype
    wide = DType.F64 if to is DType.F64 else DType.F32
    return [cast(b, b.op("mul", [cast(b, x, wide), cast(b, spread(ctx, 1), wide)]), to)]

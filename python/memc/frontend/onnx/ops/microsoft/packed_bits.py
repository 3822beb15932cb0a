# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits: a product with weights of 2, 4 or 8 bits, packed in bytes and quantized in blocks.

The weights stay packed; each is made a float right before the product, in the arena.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..structure import cut, reshape
from .domain import INT, microsoft, require_float, require_shape


def unpacked(ctx: NodeContext, packed: Value, bits: int) -> Value:
    """The numbers in bytes [..., n], the lowest bits first: [..., n, 8 / bits], as u8."""
    b = ctx.b
    if bits == 8:
        return b.op("reshape", [packed], shape=(*packed.type.shape, 1))
    each = b.op("reshape", [packed], shape=(*packed.type.shape, 1))
    shifts = b.constant(np.arange(0, 8, bits, dtype=np.uint8))
    return b.op("bitwise_and", [b.op("shift_right", [each, shifts]), b.scalar((1 << bits) - 1, DType.U8)])


def _flat(ctx: NodeContext, index: int, shape: tuple[int, ...], what: str) -> Value:
    """Input `index` as `shape`, in which it may be flattened."""
    if ctx.type(index).elements != math.prod(shape):
        raise ctx.unsupported(f"expected {what} of shape {list(shape)}, got {ctx.type(index)}")
    return reshape(ctx, ctx.value(index), shape)


def _zero_points(ctx: NodeContext, n: int, blocks: int, bits: int) -> Value:
    """The zero point of each block in at least f32, [n, blocks] or one for all."""
    b, wide = ctx.b, widen(ctx.b, ctx.value(2)).type.dtype
    if not ctx.has(3):
        return b.scalar(1 << (bits - 1), wide)
    if ctx.type(3).dtype is not DType.U8:
        return widen(b, _flat(ctx, 3, (n, blocks), "zero points"))
    size = -(-blocks * bits // 8)
    points = unpacked(ctx, _flat(ctx, 3, (n, size), "packed zero points"), bits)
    return cast(b, cut(ctx, reshape(ctx, points, (n, size * 8 // bits)), {1: (0, blocks, 1)}), wide)


def _by_group(ctx: NodeContext, values: Value, k: int) -> Value:
    """Values of blocks [n, blocks] for each of the `k` rows, by the groups that input 4 tells."""
    groups = ctx.type(4)
    if groups.rank != 1 or groups.shape[0] < k or not groups.dtype.is_integer:
        raise ctx.unsupported(f"expected g_idx of {k} integers, got {groups}")
    indices = cut(ctx, cast(ctx.b, ctx.value(4), DType.I32), {0: (0, k, 1)})
    return values if values.type.rank == 0 else ctx.b.op("gather", [values, indices], axis=1)


def _weights(ctx: NodeContext, n: int, k: int, bits: int, block: int) -> Value:
    """The weights [n, k] as floats."""
    b, blocks, size = ctx.b, -(-k // block), block * bits // 8
    if ctx.type(1).dtype is not DType.U8:
        raise ctx.unsupported(f"expected packed weights of type u8, got {ctx.type(1)}")
    numbers = unpacked(ctx, _flat(ctx, 1, (n, blocks, size), "packed weights"), bits)
    scales = widen(b, _flat(ctx, 2, (n, blocks), "scales"))
    points = _zero_points(ctx, n, blocks, bits)
    if ctx.has(4):
        numbers = cut(ctx, reshape(ctx, numbers, (n, blocks * block)), {1: (0, k, 1)})
        points, scales = (_by_group(ctx, v, k) for v in (points, scales))
    else:
        each = (n, blocks, 1, 1)
        points, scales = (v if v.type.rank == 0 else reshape(ctx, v, each) for v in (points, scales))
    found = b.op("mul", [b.op("sub", [cast(b, numbers, scales.type.dtype), points]), scales])
    return found if ctx.has(4) else cut(ctx, reshape(ctx, found, (n, blocks * block)), {1: (0, k, 1)})


@microsoft(
    "MatMulNBits",
    inputs=(3, 6),
    required=("K", "N", "block_size"),
    K=INT,
    N=INT,
    accuracy_level=INT,
    bits=INT,
    block_size=INT,
    weight_prepacked=INT,
)
def matmul_nbits(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: A, packed weights, scales, zero points, groups, bias. `accuracy_level` only allows less than this does."""
    b = ctx.b
    k, n, bits, block = (int(ctx.attr(name, 4)) for name in ("K", "N", "bits", "block_size"))
    dtype = require_float(ctx, 0, 2, 5)
    if ctx.has(3) and ctx.type(3).dtype not in (DType.U8, dtype):
        raise ctx.unsupported(f"expected zero points of type u8 or {dtype.value}, got {ctx.type(3)}")
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1):
        raise ctx.unsupported(f"weights of {bits} bits in blocks of {block}")
    if ctx.has(3) and ctx.has(4) and ctx.type(3).dtype is DType.U8:
        raise ctx.unsupported("g_idx with packed zero points, which onnxruntime's kernel for the CPU does not read")
    if ctx.attr("weight_prepacked", 0):
        raise ctx.unsupported(f"weight_prepacked {ctx.attr('weight_prepacked')}, an arrangement for one GPU")
    x = widen(b, ctx.value(0))
    if x.type.rank < 1 or x.type.shape[-1] != k:
        raise ctx.unsupported(f"expected an A with {k} columns, got {ctx.type(0)}")
    shape = (*x.type.shape[:-1], n)
    if 0 in ctx.type(1).shape and n and k:
        # Weights without any bytes stand for a projection that is left out.
        found = b.op("broadcast", [b.scalar(0, x.type.dtype)], shape=shape)
    else:
        rows = reshape(ctx, x, (1, k)) if x.type.rank == 1 else x
        found = b.op("matmul", [rows, _weights(ctx, n, k, bits, block)], transpose_a=False, transpose_b=True)
        found = reshape(ctx, found, shape)
    if ctx.has(5):
        require_shape(ctx, 5, (n,), "a bias")
        found = b.op("add", [found, widen(b, ctx.value(5))])
    return [cast(b, found, dtype)]

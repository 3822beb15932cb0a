# SPDX-License-Identifier: Apache-2.0
"""Batch normalization recomputed from the batch's statistics, which are kept: elementwise, with the same bits."""

from __future__ import annotations

from memc.ir.build import IRBuilder
from memc.ir.core import Op, Value
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.ops.shared.derivatives import widen_again

AGAIN = 31
"""Marks the casts, which no other reader shares."""


def normalized_again(b: IRBuilder, op: Op, x: Value) -> Value:
    """The first result of a `batch_norm_training` of `x`, by its mean and inverse deviation: as that op is decomposed."""
    _, mean, inverse, _ = op.results
    shape = (x.type.shape[1], *[1] * (x.type.rank - 2))
    factor = b.op("mul", [widen(b, op.operands[1]), inverse])
    center, slope, bias = (b.op("reshape", [v], shape=shape) for v in (mean, factor, widen(b, op.operands[2])))
    distance = b.op("sub", [widen_again(b, x, AGAIN), center])
    return cast(b, b.op("add", [b.op("mul", [distance, slope]), bias]), x.type.dtype)

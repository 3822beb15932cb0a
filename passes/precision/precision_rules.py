# SPDX-License-Identifier: Apache-2.0
"""Which ops may compute in half precision: f16 (Micikevicius et al. 2018, "Mixed Precision Training") or bf16 (Kalamkar et
al. 2019, "A Study of BFLOAT16 for Deep Learning Training").

Products gain from it, as tensor cores multiply halves and add up in f32. What lies between them gains by moving half the
bytes. What neither paper trusts to it, and any op that is not named here, stays in f32: exponentials, logarithms, powers
and squares, whose range is larger than that of f16, and sums over many elements.
"""

from __future__ import annotations

import math

import numpy as np

from memc.ir.core import Array, Op
from memc.ir.types import DType

NORMS = frozenset({"softmax", "layer_norm", "batch_norm", "batch_norm_training", "reduce_mean", "lrn"})
"""Half data (operand 0) in and out; all between is f32 within the op, and so are scales, biases and statistics."""

POINTWISE = frozenset(
    {
        *("add", "sub", "mul", "div", "neg", "abs", "min", "max", "select", "dropout"),
        *("relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "hard_sigmoid", "softplus", "clip", "tanh", "erf"),
    }
)
"""Each element is computed in f32 and rounded once."""

MOVES = frozenset(
    {
        *("reshape", "transpose", "slice", "concat", "pad", "broadcast", "copy", "hold", "resize_nearest"),
        *("gather", "gather_elements", "gather_nd"),
    }
)
"""Elements are copied."""

POOLS = frozenset({"max_pool", "avg_pool", "reduce_max", "reduce_min"})
"""No result is larger than the largest element."""

WIDENED = frozenset({"reduce_max", "reduce_min"})
"""Read bf16 by a cast, as they take no bf16 themselves. What they give is one of the elements, so it is bf16 without being
rounded."""

FOLLOWERS = POINTWISE | MOVES | POOLS
"""Half where what they read is half already."""

BOUNDED = frozenset({"softmax", "sigmoid", "hard_sigmoid", "tanh", "erf"})
"""Small results, whatever they read."""


def is_square(op: Op) -> bool:
    """Whether a product of a number with itself, which exceeds f16 from 256 on."""
    return op.name == "mul" and op.operands[0] is op.operands[1]


def pads_with(op: Op) -> float | None:
    """The number that a `pad` writes, None for other ops."""
    value = op.attrs.get("value") if op.name == "pad" else None
    return float(value) if isinstance(value, (int, float)) else None


def fits(data: Array, to: DType) -> bool:
    """Whether constants survive being rounded to `to`: none becomes infinite (such as a mask's -3.4e38), and a single one
    (such as an epsilon) does not get lost below the smallest normal number."""
    largest, smallest = _range(to)
    numbers = np.abs(data[np.isfinite(data)].astype(np.float64))
    if numbers.size and float(numbers.max()) > largest:
        return False
    return data.size > 1 or not numbers.any() or float(numbers.min()) >= smallest


def _range(dtype: DType) -> tuple[float, float]:
    """The largest number that does not round to infinity, and the smallest normal one."""
    if dtype is DType.F16:
        return 65504.0, 2.0**-14
    return math.ldexp(2 - 2.0**-7, 127), 2.0**-126

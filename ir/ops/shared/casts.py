# SPDX-License-Identifier: Apache-2.0
"""Casts that decompositions and gradient rules write."""

from __future__ import annotations

from ...build import IRBuilder
from ...core import Value
from ...types import DType
from .layout import SUFFIX

HALF = (DType.F16, DType.BF16)
"""Element types that accumulate in f32."""

PRODUCTS = frozenset(
    {
        "matmul",
        *(f"{name}{end}" for name in ("conv", "conv_transpose", "conv_grad_weight") for end in ("", SUFFIX)),
    }
)
"""Ops that add up products of their first two operands: of halves in f32, which is their result."""


def cast(b: IRBuilder, x: Value, to: DType) -> Value:
    """x with another element type; x itself if it has that type."""
    return x if x.type.dtype is to else b.op("cast", [x], to=to)


def widen(b: IRBuilder, x: Value) -> Value:
    """Half precision as f32, so that what follows accumulates in it; others as they are."""
    return cast(b, x, DType.F32) if x.type.dtype in HALF else x

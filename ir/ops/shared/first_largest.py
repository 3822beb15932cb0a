# SPDX-License-Identifier: Apache-2.0
"""The position of the first largest element, found by one maximum of integers.

Each element becomes a key: its rank among all values of its type in the high bits and, in the low bits, a number that is larger
for earlier positions. The keys of a window say where its largest element is without a second look at the elements. A search
for an element that equals the maximum, computed elsewhere, is no substitute: a kernel that computes the elements once more,
fused or with another workspace, may round them apart, and then none is equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core import Array
from ...types import DType
from .op_def import Builder, Expr

ABSENT = -(2**63)
"""The key of an element that does not exist: below all others."""
_UNORDERED = 2**63 - 1
"""The key of a NaN: above all others."""
_INTEGERS = (DType.I8, DType.U8, DType.I16, DType.U16, DType.I32, DType.U32)
TYPES = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64, *_INTEGERS})
"""Element types with keys of 64 bits."""


@dataclass(frozen=True)
class Keys:
    """Keys of the elements of windows of `count` positions.

    Those of f64 lack its last bits, in which the position stands: elements that agree in the others are equal.
    """

    dtype: DType
    count: int

    @property
    def bits(self) -> int:
        return self.count.bit_length()

    def lower(self, b: Builder, value: Expr, number: Expr) -> Expr:
        """The key, an i64, of `value` at position `number` (an i64)."""

        def wide(n: int) -> Expr:
            return b.const(n, DType.I64)

        place = wide(self.count - 1) - number
        if self.dtype in _INTEGERS:
            return b.cast(value, DType.I64) * wide(1 << self.bits) + place
        to, whole = (DType.F64, DType.I64) if self.dtype is DType.F64 else (DType.F32, DType.I32)
        value = b.cast(value, to)
        zero = b.const(0, whole)
        raw = b.select(b.equal(value, b.const(0, to)), zero, b.bitcast(value, whole))  # -0 and 0 are equal
        turned = b.binary("bitwise_xor", raw, b.const(int(np.iinfo(whole.numpy).max), whole))
        rank = b.cast(b.select(raw < zero, turned, raw), DType.I64)
        if self.dtype is DType.F64:
            key = b.binary("bitwise_and", rank, wide(-1 << self.bits)) + place
        else:
            key = rank * wide(1 << self.bits) + place
        return b.select(b.unary("isnan", value), wide(_UNORDERED), key)

    def position(self, b: Builder, largest: Expr, none: Expr) -> Expr:
        """The position (i64) of the largest of a window's keys; `none` (an i64) for a window of no elements or with a NaN."""
        number = b.const(self.count - 1, DType.I64) - b.binary(
            "bitwise_and", largest, b.const((1 << self.bits) - 1, DType.I64)
        )
        real = b.logical_and(
            b.not_equal(largest, b.const(ABSENT, DType.I64)), b.not_equal(largest, b.const(_UNORDERED, DType.I64))
        )
        return b.select(real, number, none)

    def evaluate(self, values: Array, number: int) -> npt.NDArray[np.int64]:
        """`lower` with numpy."""
        place = self.count - 1 - number
        if self.dtype in _INTEGERS:
            return (values.astype(np.int64) << self.bits) + place
        to, whole = (np.float64, np.int64) if self.dtype is DType.F64 else (np.float32, np.int32)
        wide = values.astype(to)
        raw = np.where(wide == 0, whole(0), wide.view(whole))
        rank = np.where(raw < 0, raw ^ np.iinfo(whole).max, raw).astype(np.int64)
        keys = (rank & (-1 << self.bits)) + place if self.dtype is DType.F64 else (rank << self.bits) + place
        return np.where(np.isnan(wide), _UNORDERED, keys)

    def evaluate_position(self, largest: npt.NDArray[np.int64], none: int) -> npt.NDArray[np.int64]:
        """`position` with numpy."""
        real = (largest != ABSENT) & (largest != _UNORDERED)
        return np.where(real, self.count - 1 - (largest & ((1 << self.bits) - 1)), none)

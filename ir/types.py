# SPDX-License-Identifier: Apache-2.0
"""Element types, shapes and their sizes in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

MAX_BYTES = 2**62
"""Dimensions and tensor sizes in bytes stay below this."""

MAX_RANK = 32
"""Axes of a tensor, as in the text."""


class DType(Enum):
    """An element type. The value is its name in IR text."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    BOOL = "bool"

    __hash__ = object.__hash__  # Members are compared by identity; the enumeration's own takes far longer.

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype with the same bits (bf16 comes from ml_dtypes; bool is one byte)."""
        return _NUMPY[self]

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(_NUMPY[self].itemsize)

    @property
    def is_float(self) -> bool:
        return self in (DType.F64, DType.F32, DType.F16, DType.BF16)

    @property
    def is_signed(self) -> bool:
        return self in (DType.I64, DType.I32, DType.I16, DType.I8)

    @property
    def is_unsigned(self) -> bool:
        return self in (DType.U64, DType.U32, DType.U16, DType.U8)

    @property
    def is_integer(self) -> bool:
        return self.is_signed or self.is_unsigned

    @staticmethod
    def from_numpy(dtype: np.dtype[Any]) -> DType:
        """The element type of a numpy array. Raises KeyError for one the IR does not have."""
        return _FROM_NUMPY[np.dtype(dtype)]


_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F64: np.dtype(np.float64),
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.I64: np.dtype(np.int64),
    DType.I32: np.dtype(np.int32),
    DType.I16: np.dtype(np.int16),
    DType.I8: np.dtype(np.int8),
    DType.U64: np.dtype(np.uint64),
    DType.U32: np.dtype(np.uint32),
    DType.U16: np.dtype(np.uint16),
    DType.U8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
}
_FROM_NUMPY = {v: k for k, v in _NUMPY.items()}


@dataclass(frozen=True)
class TensorType:
    """A dense row-major tensor of static shape; a scalar has shape ()."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def elements(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the data, without alignment padding."""
        return self.elements * self.dtype.itemsize

    @property
    def span(self) -> int:
        """Bytes of the data if each extent of 0 were 1."""
        return math.prod(n for n in self.shape if n) * self.dtype.itemsize

    @cached_property
    def is_valid(self) -> bool:
        """Whether there can be such a tensor: of an element type, at most `MAX_RANK` axes, and fewer than `MAX_BYTES` bytes. In one
        without elements the other extents count, too: strides of theirs must fit, in numpy's arrays as in code."""
        typed = isinstance(self.dtype, DType) and isinstance(self.shape, tuple) and len(self.shape) <= MAX_RANK
        return typed and all(type(n) is int and 0 <= n < MAX_BYTES for n in self.shape) and self.span < MAX_BYTES

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"

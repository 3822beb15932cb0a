# SPDX-License-Identifier: Apache-2.0
"""Tensors over numpy memory, without copies. numpy has no DLPack name for bf16, so all go through bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi

from memc.ir.core import Array
from memc.ir.types import DType

FFI_DTYPE = {
    DType.F64: "float64",
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.I64: "int64",
    DType.I32: "int32",
    DType.I16: "int16",
    DType.I8: "int8",
    DType.U64: "uint64",
    DType.U32: "uint32",
    DType.U16: "uint16",
    DType.U8: "uint8",
    DType.BOOL: "bool",
}
"""TVM's name of each element type."""

ALIGNMENT = 64
"""Bytes: what kernels assume of the address of every tensor."""


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array whose data starts at a multiple of `ALIGNMENT`."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def is_usable(array: Array) -> bool:
    """Whether kernels can read the array where it is: compact, row-major, aligned."""
    return bool(array.flags.c_contiguous) and array.ctypes.data % ALIGNMENT == 0


def aligned(array: Array) -> Array:
    """The array itself if kernels can read it, else a copy."""
    if is_usable(array):
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def tensor_over(array: Array) -> Any:
    """A TVM tensor that shares the memory of a compact, non-empty numpy array (read-only ones too)."""
    dtype = FFI_DTYPE[DType.from_numpy(array.dtype)]
    raw = array.reshape(-1).view(np.uint8)
    if not raw.flags.writeable:
        raw = np.ndarray(raw.shape, np.uint8, buffer=memory_of(array))
    return tvm_ffi.from_dlpack(raw)._create_view(array.shape, dtype)


def memory_of(array: Array) -> Any:
    """A writable-looking buffer over a read-only array: DLPack refuses those. Nothing writes through it."""
    import ctypes

    buffer = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    buffer._owner = array  # type: ignore[attr-defined]
    return buffer

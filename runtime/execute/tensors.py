# SPDX-License-Identifier: Apache-2.0
"""Tensors over numpy memory and back, without copies. Needs nothing but numpy and TVM's FFI.

numpy has no DLPack name for bf16 and refuses to export read-only arrays, so all memory is exchanged as bytes.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

Array = npt.NDArray[Any]

FFI_DTYPE = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "bool": "bool",
}
"""TVM's (and numpy's) name of each element type of the IR."""

IR_DTYPE = {name: short for short, name in FFI_DTYPE.items()}

ALIGNMENT = 64
"""Bytes: what CPU kernels assume of the address of every tensor."""


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """numpy's dtype for an element type of the IR (bf16 needs the ml_dtypes package)."""
    if dtype == "bf16":
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(FFI_DTYPE[dtype])


def typed(raw: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    """Compact bytes as a tensor of an element type of the IR, in the same memory."""
    return raw.view(numpy_dtype(dtype)).reshape(shape)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array whose data starts at a multiple of `ALIGNMENT`."""
    nbytes = math.prod(shape) * dtype.itemsize
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
    """A TVM tensor that shares the memory of a compact numpy array (a read-only one too: nobody may write to it)."""
    raw: Array = np.ndarray((array.nbytes,), np.uint8, buffer=memory(array.ctypes.data, array.nbytes, array))
    return tvm_ffi.from_dlpack(raw)._create_view(array.shape, array.dtype.name)


def array_over(tensor: Any, dtype: str) -> Array:
    """A writable numpy array that shares the memory of a compact TVM tensor on the CPU and keeps it alive.

    `dtype` is the IR's name of its element type.
    """
    kind, shape = numpy_dtype(dtype), tuple(int(d) for d in tensor.shape)
    nbytes = math.prod(shape) * kind.itemsize
    view: Array = np.ndarray(shape, kind, buffer=memory(tensor.data_ptr(), nbytes, tensor))
    return view


def memory(address: int, nbytes: int, owner: Any) -> Any:
    """A buffer over foreign memory that keeps `owner` alive."""
    if nbytes == 0:
        return bytearray()
    buffer = (ctypes.c_uint8 * nbytes).from_address(address)
    buffer._owner = owner  # type: ignore[attr-defined]
    return buffer

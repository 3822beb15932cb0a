# SPDX-License-Identifier: Apache-2.0
"""What callers give as inputs, as arrays and tensors of the input's type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.arrays import plain
from memc.ir.errors import UsageError
from memc.runtime.artifact.manifest import Spec
from memc.runtime.execute.tensors import IR_DTYPE, memory, numpy_dtype

Array = npt.NDArray[Any]


NUMBERS = (list, tuple, bool, int, float)
"""Types of inputs that are no tensors, but numbers or lists of them."""


def require(spec: Spec, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise UsageError unless TVM's name of an element type, and a shape, are those of the input."""
    if IR_DTYPE.get(dtype) != spec.dtype or tuple(shape) != spec.shape:
        got = f"{IR_DTYPE.get(dtype, dtype)}[{','.join(map(str, shape))}]"
        raise UsageError(f"input {spec.name}: expected {str(spec).split(': ', 1)[1]}, got {got}")


def from_numbers(spec: Spec, value: Any) -> Array:
    """Python numbers, or lists of them, as an array of the input's element type: floats are rounded to it.

    Raises UsageError for numbers that it does not hold, and for lists that are no tensor of numbers."""
    array = plain(value, f"input {spec}")
    if array.dtype.kind not in "biuf" and array.size:
        raise UsageError(f"input {spec}: expected numbers, got {type(value).__name__} of {array.dtype}")
    kind = numpy_dtype(spec.dtype)
    if array.dtype.kind == "b" and kind.kind != "b":
        raise UsageError(f"input {spec}: expected numbers, got {type(value).__name__} of bool")
    with np.errstate(invalid="ignore", over="ignore"):
        found = array.astype(kind)
        exact = kind.kind in "biu"
        lost = found.astype(array.dtype) != array if exact else np.isinf(found) & np.isfinite(array)
    if lost.any():
        raise UsageError(f"input {spec}: expected numbers that {spec.dtype} holds, got {array[lost].flat[0]}")
    return found


def exchanged(spec: Spec, value: Any) -> Any:
    """A DLPack tensor of the right type as TVM's, over the same memory. Raises UsageError."""
    import tvm_ffi

    if not hasattr(value, "__dlpack__") and not isinstance(value, tvm_ffi.Tensor):
        raise UsageError(f"input {spec}: expected a numpy array or a DLPack tensor, got {type(value).__name__}")
    try:
        tensor = value if isinstance(value, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(negated(value))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        said = str(error).strip().partition("\n")[0]  # PyTorch adds the frames of its C++ code.
        raise UsageError(f"input {spec}: cannot be read through DLPack: {said}") from None
    require(spec, str(tensor.dtype), tuple(int(d) for d in tensor.shape))
    return tensor


def negated(value: Any) -> Any:
    """A PyTorch tensor whose numbers are those in its memory: one with the negative bit, such as the imaginary part of a
    conjugate, is copied, since DLPack does not tell of the bit. Anything else as it is."""
    is_negative = getattr(value, "is_neg", None)
    return value.resolve_neg() if is_negative is not None and is_negative() else value


def strided(tensor: Any, dtype: str) -> Array:
    """A tensor in the host's memory as an array with its strides, over the same memory. `dtype` is the IR's name of its
    element type."""
    kind, shape = numpy_dtype(dtype), tuple(int(d) for d in tensor.shape)
    strides = tuple(int(s) * kind.itemsize for s in tensor.strides)
    if 0 in shape:
        return np.empty(shape, kind)
    # From the element at the lowest address to that at the highest.
    reaches = [(extent - 1) * stride for extent, stride in zip(shape, strides)]
    first, last = sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0)
    raw = memory(int(tensor.data_ptr()) + first, last - first + kind.itemsize, tensor)
    view: Array = np.ndarray(shape, kind, buffer=raw, offset=-first, strides=strides)
    return view


def compact_on_device(spec: Spec, value: Any) -> Any:
    """A strided tensor in a device's memory as a compact one, by the framework that it comes from. Raises UsageError where that
    is none that memc knows how to ask."""
    if hasattr(value, "contiguous"):  # PyTorch, Paddle.
        return value.contiguous()
    if type(value).__module__.partition(".")[0] == "cupy":
        return value.copy(order="C")
    raise UsageError(f"input {spec}: expected a compact row-major tensor, got strides in a {type(value).__name__}")

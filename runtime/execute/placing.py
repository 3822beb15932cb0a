# SPDX-License-Identifier: Apache-2.0
"""Inputs of runs as TVM tensors: where they lie if kernels can read them there, otherwise copied to the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from memc.ir.arrays import plain, type_name
from memc.ir.errors import UsageError
from memc.runtime.artifact.manifest import Spec
from memc.runtime.execute.loading import Loaded
from memc.runtime.execute.tensors import IR_DTYPE, aligned, array_over, tensor_over


class Placing:
    """The places of an executable's inputs, and copies in them, each of which lasts until the next run."""

    def __init__(self, loaded: Loaded) -> None:
        self.devices = {spec.name: loaded.device_of(spec.space) for spec in loaded.manifest.inputs}
        self.alignments = {spec.name: loaded.manifest.space(spec.space).alignment for spec in loaded.manifest.inputs}
        self.on_host = loaded.manifest.kind == "llvm"
        self._staged: dict[str, Any] = {}

    def tensor(self, spec: Spec, value: Any) -> Any:
        """An input as a TVM tensor on the device, in place where possible."""
        if isinstance(value, (np.ndarray, np.generic)):
            array = plain(value, f"input {spec}")
            require(spec, type_name(array), array.shape)
            host = tensor_over(aligned(array))
            return host if self.on_host else self.staged(spec, host)
        return self.placed(spec, self.exchanged(spec, value))

    def in_place(self, spec: Spec, value: Any) -> Any:
        """An input as a TVM tensor over the caller's memory on the device; None if it is not usable there."""
        if isinstance(value, (np.ndarray, np.generic)):
            return None
        tensor = self.exchanged(spec, value)
        return tensor if self.is_usable(spec, tensor) else None

    def is_here(self, spec: Spec, tensor: Any) -> bool:
        """Whether a tensor lies on the input's device."""
        return str(tensor.device) == str(self.devices[spec.name])

    def is_usable(self, spec: Spec, tensor: Any) -> bool:
        """Whether kernels can read a tensor where it is."""
        here = self.is_here(spec, tensor)
        return bool(here and tensor.is_contiguous() and tensor.data_ptr() % self.alignments[spec.name] == 0)

    def exchanged(self, spec: Spec, value: Any) -> Any:
        """A DLPack tensor of the right type as TVM's, over the same memory."""
        import tvm_ffi

        if not hasattr(value, "__dlpack__") and not isinstance(value, tvm_ffi.Tensor):
            raise UsageError(f"input {spec}: expected a numpy array or a DLPack tensor, got {type(value).__name__}")
        try:
            tensor = value if isinstance(value, tvm_ffi.Tensor) else tvm_ffi.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            raise UsageError(f"input {spec}: cannot be read through DLPack: {error}") from None
        require(spec, str(tensor.dtype), tuple(int(d) for d in tensor.shape))
        return tensor

    def placed(self, spec: Spec, tensor: Any) -> Any:
        """A DLPack tensor of the right type: itself if it is usable where it is, else a copy."""
        if self.is_usable(spec, tensor):
            return tensor
        if not tensor.is_contiguous():
            raise UsageError(f"input {spec}: expected a compact row-major tensor, got strides {tuple(tensor.strides)}")
        if self.is_here(spec, tensor) and self.on_host:
            return tensor_over(aligned(array_over(tensor, spec.dtype)))
        return self.staged(spec, tensor)

    def staged(self, spec: Spec, tensor: Any) -> Any:
        """A copy on the device that lasts until the next run: always in one place, where graphs expect it."""
        if spec.name not in self._staged:
            self._staged[spec.name] = self.moved(spec, tensor)
        else:
            self._staged[spec.name].copyfrom(tensor)
        return self._staged[spec.name]

    def moved(self, spec: Spec, tensor: Any) -> Any:
        """A new copy on the device."""
        import tvm

        copy = tvm.runtime.empty(tuple(tensor.shape), str(tensor.dtype), self.devices[spec.name])
        return copy.copyfrom(tensor)


def require(spec: Spec, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise UsageError for a tensor of another type than the input's."""
    if IR_DTYPE.get(dtype) != spec.dtype or tuple(shape) != spec.shape:
        got = f"{IR_DTYPE.get(dtype, dtype)}[{','.join(map(str, shape))}]"
        raise UsageError(f"input {spec.name}: expected {str(spec).split(': ', 1)[1]}, got {got}")

# SPDX-License-Identifier: Apache-2.0
"""Inputs of runs as TVM tensors: where they lie if kernels can read them there, otherwise copied to the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from memc.ir.arrays import plain, type_name
from memc.runtime.artifact.manifest import Spec
from memc.runtime.cuda.cuda_runtime import synchronize_device
from memc.runtime.execute.inputs import NUMBERS, compact_on_device, exchanged, from_numbers, require, strided
from memc.runtime.execute.load_code import Loaded
from memc.runtime.execute.tensors import aligned, array_over, tensor_over


class Placing:
    """The places of an executable's inputs, and copies in them, each of which lasts until the next run."""

    def __init__(self, loaded: Loaded) -> None:
        self.devices = {spec.name: loaded.device_of(spec.space) for spec in loaded.manifest.inputs}
        self.alignments = {spec.name: loaded.manifest.space(spec.space).alignment for spec in loaded.manifest.inputs}
        self.on_host = loaded.manifest.kind == "llvm"
        self._staged: dict[str, Any] = {}

    def tensor(self, spec: Spec, value: Any) -> Any:
        """An input as a TVM tensor on the device, in place where possible."""
        if isinstance(value, NUMBERS):
            value = from_numbers(spec, value)
        if isinstance(value, (np.ndarray, np.generic)):
            array = plain(value, f"input {spec}")
            require(spec, type_name(array), array.shape)
            host = tensor_over(aligned(array))
            return host if self.on_host else self.staged(spec, host)
        return self.placed(spec, value, exchanged(spec, value))

    def in_place(self, spec: Spec, value: Any) -> Any:
        """An input as a TVM tensor over the caller's memory on the device; None if it is not usable there."""
        if isinstance(value, (np.ndarray, np.generic)):
            return None
        tensor = exchanged(spec, value)
        return tensor if self.is_usable(spec, tensor) else None

    def is_here(self, spec: Spec, tensor: Any) -> bool:
        """Whether a tensor lies on the input's device."""
        return str(tensor.device) == str(self.devices[spec.name])

    def is_usable(self, spec: Spec, tensor: Any) -> bool:
        """Whether kernels can read a tensor where it is."""
        here = self.is_here(spec, tensor)
        return bool(here and tensor.is_contiguous() and tensor.data_ptr() % self.alignments[spec.name] == 0)

    def placed(self, spec: Spec, value: Any, tensor: Any) -> Any:
        """A DLPack tensor of the right type: itself if it is usable where it is, else a copy."""
        if self.is_usable(spec, tensor):
            return tensor
        if not tensor.is_contiguous():
            if str(tensor.device).startswith(("cpu", "cuda_host")):
                return self.tensor(spec, strided(tensor, spec.dtype))
            synchronize_device()  # The framework may copy on another stream, and take its copy's memory back.
            copy = self.staged(spec, exchanged(spec, compact_on_device(spec, value)))
            synchronize_device()
            return copy
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

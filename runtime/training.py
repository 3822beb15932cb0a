# SPDX-License-Identifier: Apache-2.0
"""Running a compiled training step, and its state: weights, optimizer moments, statistics, counters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.arrays import plain, type_name
from memc.ir.errors import InvalidError, UsageError
from memc.runtime import safetensors
from memc.runtime.device_errors import device_errors
from memc.runtime.executable import Executable
from memc.runtime.loading import Loaded
from memc.runtime.manifest import SOURCE, Slot
from memc.runtime.tensors import array_over, numpy_dtype, typed

Array = npt.NDArray[Any]

RATE = "learning_rate"


class TrainingStep(Executable):
    """A compiled training step: call it with a batch and its labels; it updates its state and returns the loss.

    The learning rate is the attribute `learning_rate`, unless a call gives another.
    """

    def __init__(self, loaded: Loaded, weights: Any = None) -> None:
        super().__init__(loaded, weights)
        manifest = self.manifest
        self.learning_rate = 0.01
        self.states: dict[str, Slot] = {s.spec.name: s for s in manifest.weights if s.spec.name in manifest.states}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """One step on a batch. Returns the loss, a float, or all results by name where there are others too.

        Raises UsageError for a wrong name, number, shape, element type or device of the inputs.
        """
        self.require_host()
        names = [spec.name for spec in self.inputs]
        if RATE in names and RATE not in kwargs and len(args) < len(names):
            kwargs[RATE] = self.learning_rate
        if isinstance(kwargs.get(RATE), (int, float)):
            kwargs[RATE] = np.float32(kwargs[RATE])
        args = tuple(
            np.float32(value) if name == RATE and isinstance(value, (int, float)) else value
            for name, value in itertools.zip_longest(names[: len(args)], args)
        )
        results = super().__call__(*args, **kwargs)
        if len(self.outputs) > 1:
            return results
        (spec,) = self.outputs
        return float(self.to_numpy(spec, results[spec.name]).reshape(()))

    def session(self) -> TrainingStep:
        """Another step with a state of its own, which is a copy of what this one has now, and an arena of its own."""
        self.require_host()
        with self.running, device_errors(self.manifest, self.device, "making a session"):
            slab = self.storage("weights", self.manifest.weights_bytes)
            self.machine["bytes_of_weights"](slab).copyfrom(self.machine["bytes_of_weights"](self.weights))
        other = TrainingStep(self.loaded, slab)
        other.learning_rate = self.learning_rate
        other.keeps = self.keeps
        return other

    def state(self) -> dict[str, Array]:
        """A copy of every state by name: weights as in the model, and the optimizer's as `WEIGHT.momentum` and such."""
        self.require_host()
        with self.running:
            slab = self._slab()
            return {
                name: typed(slab[s.offset : s.offset + s.spec.nbytes].copy(), s.spec.dtype, s.spec.shape)
                for name, s in self.states.items()
            }

    def load_state(self, content: Mapping[str, Array]) -> None:
        """Set states by name; those not among `content` stay as they are.

        Raises UsageError for an unknown name, or another shape or element type.
        """
        if not isinstance(content, Mapping):
            raise UsageError(f"state: expected a dict of arrays by name, got {type(content).__name__}")
        self.require_host()
        checked = {name: self._checked(name, array) for name, array in content.items()}
        with self.running:
            slab = self._slab()
            for name, raw in checked.items():
                offset = self.states[name].offset
                slab[offset : offset + raw.size] = raw
            if self.manifest.kind != "llvm":
                with device_errors(self.manifest, self.device, "writing the state"):
                    self.machine["bytes_of_weights"](self.weights).copyfrom(slab)

    def save(self, path: str | Path) -> None:
        """Write the state as a safetensors file, from which `restore` goes on."""
        state = self.state()
        entries = []
        for name, slot in self.states.items():
            spec = slot.spec
            entries.append((name, spec.dtype, spec.shape, spec.nbytes, lambda array=state[name]: array))
        try:
            safetensors.write(Path(path), entries)
        except OSError as error:
            raise UsageError(f"{path}: cannot write the state: {error.strerror or error}") from None

    def restore(self, path: str | Path) -> None:
        """Read what `save` wrote. States that the step does not have are left aside.

        Raises UsageError for a file that cannot be opened, InvalidError for a damaged one or one of another model.
        """
        try:
            stored, types = safetensors.read(Path(path)), safetensors.types(Path(path))
        except OSError as error:
            raise UsageError(f"{path}: cannot read the state: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidError(f"{path}: cannot be read as saved state: {error}") from None
        missing = sorted(self.states.keys() - stored.keys())
        if missing:
            others = f" (nor {len(missing) - 1} others)" if len(missing) > 1 else ""
            raise InvalidError(f"{path}: expected the state {missing[0]}, but it is not there{others}")
        found = {}
        for name, slot in self.states.items():
            raw, (dtype, shape) = stored[name], types[name]
            if (dtype, shape) != (safetensors.CODES[slot.spec.dtype], slot.spec.shape) or raw.size != slot.spec.nbytes:
                got = f"{dtype.lower()}[{','.join(map(str, shape))}]"
                raise InvalidError(f"{path}: expected {slot.spec}, got {got} of {raw.size} bytes")
            found[name] = typed(np.array(raw), slot.spec.dtype, slot.spec.shape)
        self.load_state(found)

    def export_onnx(self, path: str | Path) -> None:
        """Write the model that was compiled, with its weights as they are now.

        Raises UsageError if the artifact was not compiled from an ONNX model, or `path` cannot be written.
        """
        import onnx

        source = self.manifest.path / SOURCE
        if not source.is_file():
            raise UsageError(f"{self.manifest.path}: was not compiled from an ONNX model, so there is none to export")
        model = onnx.load(source, load_external_data=False)
        state = self.state()
        for tensor in model.graph.initializer:
            if tensor.name in state:
                tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name], tensor.name))
        try:
            large = model.ByteSize() > 2**31 - 2**20
            onnx.save(model, path, save_as_external_data=large, location=Path(path).name + ".data" if large else None)
        except OSError as error:
            raise UsageError(f"{path}: cannot write the model: {error.strerror or error}") from None

    def _slab(self) -> Array:
        """The bytes of weights and states: themselves on the CPU, a copy of the device's."""
        tensor = self.machine["bytes_of_weights"](self.weights)
        if self.manifest.kind == "llvm":
            return array_over(tensor, "u8")
        import tvm

        with device_errors(self.manifest, self.device, "reading the state"):
            return np.array(tensor.copyto(tvm.cpu(0)).numpy())

    def _checked(self, name: str, array: Array) -> Array:
        """The bytes of a new content."""
        if name not in self.states:
            raise UsageError(f"no state is called {name}; expected one of {', '.join(sorted(self.states))}")
        spec = self.states[name].spec
        array = plain(array, f"state {spec}")
        if array.dtype != numpy_dtype(spec.dtype) or array.shape != spec.shape:
            raise UsageError(f"state {spec}: got {type_name(array)}{list(array.shape)}")
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

# SPDX-License-Identifier: Apache-2.0
"""Running a compiled training step, and its state: weights, optimizer moments, statistics, counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from memc.ir.arrays import plain, type_name
from memc.ir.checked import F32_MOST, Range, is_real, require
from memc.ir.errors import InvalidError, MemcError, UsageError
from memc.ir.messages import nearest
from memc.runtime.artifact import safetensors
from memc.runtime.artifact.manifest import SOURCE, Slot, Spec, content
from memc.runtime.execute import labels
from memc.runtime.execute.device_errors import device_errors
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.labels import OUTSIDE
from memc.runtime.execute.loading import Loaded
from memc.runtime.execute.memory import content_of, copied
from memc.runtime.execute.tensors import numpy_dtype, typed

Array = npt.NDArray[Any]

RATE = "learning_rate"

DEFAULT_RATE = 0.01

Rate = Annotated[float, Range(least=0, most=F32_MOST)]
"""Learning rates: others turn every weight into nan, or make the loss grow."""


class TrainingStep(Executable):
    """A compiled training step: call it with a batch and its labels; it updates its state and returns the loss.

    The learning rate is the attribute `learning_rate`, unless a call gives another.
    """

    def __init__(self, loaded: Loaded, shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(loaded, shared)
        manifest = self.manifest
        self.learning_rate = DEFAULT_RATE
        self.states: dict[str, Slot] = {s.spec.name: s for s in manifest.weights if s.spec.name in manifest.states}

    @property
    def learning_rate(self) -> float:
        """The rate of steps that are not given another: a finite number from 0 on. Setting another raises UsageError."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._learning_rate: float = require(rate, Rate, "learning_rate")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[Spec, Any]]:
        """Each input with its value, the learning rate checked where the host can see it."""
        return [(spec, checked_rate(v) if spec.name == RATE else v) for spec, v in super().bind(args, kwargs)]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """One step on a batch. Returns the loss, a float, or all results by name where there are others too.

        Raises UsageError for a wrong name, number, shape, element type or device of the inputs, and for a learning rate that
        is none.
        """
        self.require_host()
        names = [spec.name for spec in self.inputs]
        if RATE in names and RATE not in kwargs and len(args) < len(names):
            kwargs[RATE] = self.learning_rate
        results = super().__call__(*args, **kwargs)
        if len(results) > 1:
            return results
        ((name, value),) = results.items()
        return float(self.to_numpy(self.output(name), value).reshape(()))

    def finished(self, given: list[tuple[Spec, Any]], results: dict[str, Any]) -> dict[str, Any]:
        """The results without the number of labels that name no class. Raises UsageError unless it is 0."""
        count = results.pop(OUTSIDE, None)
        if count is None or not int(self.to_numpy(self.output(OUTSIDE), count)):
            return results
        for spec, value in given:
            rules = [rule for rule in self.manifest.labels if rule.input == spec.name]
            array = labels.from_device(value) if rules else None
            if array is not None:
                for rule in rules:
                    labels.require_classes(spec, array, rule)
        number = int(self.to_numpy(self.output(OUTSIDE), count))
        raise UsageError(f"labels: expected classes of the loss, got {number} that are none; the step changed nothing")

    def session(self) -> TrainingStep:
        """Another step with a state of its own, which is a copy of what this one has now, and an arena of its own."""
        self.require_host()
        with self.running, device_errors(self.manifest, self.device, "making a session"):
            own = {
                name: copied(self.loaded, self.machine, self.manifest.space(name), storage)
                for name, storage in self.storages_of_weights().items()
            }
        other = TrainingStep(self.loaded, own)
        other.learning_rate = self.learning_rate
        other.keeps = self.keeps
        return other

    def state(self) -> dict[str, Array]:
        """A copy of every state by name: weights as in the model, and the optimizer's as `WEIGHT.momentum` and such."""
        self.require_host()
        with self.running:
            found = self._contents()
            return {
                name: typed(found[s.spec.space][s.offset : s.offset + s.spec.nbytes].copy(), s.spec.dtype, s.spec.shape)
                for name, s in self.states.items()
            }

    def load_state(self, content: Mapping[str, Array], *, partial: bool = False) -> None:
        """Set all states by name. With `partial`, those not among `content` stay as they are.

        Raises UsageError for an unknown or missing name, or another shape or element type; no state has changed then.
        """
        if not isinstance(content, Mapping):
            raise UsageError(f"state: expected a dict of arrays by name, got {type(content).__name__}")
        unknown = next((name for name in content if name not in self.states), None)
        if unknown is not None:
            near = nearest(str(unknown), self.states)
            raise UsageError(f"no state is called {unknown}; expected one of {', '.join(sorted(self.states))}{near}")
        self.require_host()
        checked = {name: self._checked(name, array) for name, array in content.items()}
        wrong = None if partial else differing(self.states, checked)
        if wrong is not None:
            raise UsageError(f"state: {wrong}; partial=True leaves the others as they are")
        with self.running:
            found = self._contents()
            for name, raw in checked.items():
                slot = self.states[name]
                found[slot.spec.space][slot.offset : slot.offset + raw.size] = raw
            for name, array in found.items():
                space = self.manifest.space(name)
                if space.device.kind != "cpu":  # Else it is the content itself.
                    with device_errors(self.manifest, self.device, "writing the state"):
                        self.machine[space.viewer](self.storages[name]).copyfrom(array)

    def save(self, path: str | Path) -> None:
        """Write the state as a safetensors file, from which `restore` goes on."""
        path, state = path_of(path), self.state()
        entries = []
        for name, slot in self.states.items():
            spec = slot.spec
            entries.append((name, spec.dtype, spec.shape, spec.nbytes, lambda array=state[name]: array))
        try:
            safetensors.write(path, entries)
        except OSError as error:
            raise UsageError(f"{path}: cannot write the state: {error.strerror or error}") from None

    def restore(self, path: str | Path, *, partial: bool = False) -> None:
        """Read what `save` wrote: all states of this step, and no others. With `partial`, states of one side alone are left
        aside: the step keeps its own.

        Raises UsageError for a file that cannot be opened, InvalidError for a damaged one or one of another model or
        optimizer; no state has changed then.
        """
        path = path_of(path)
        try:
            stored, types = safetensors.read(path), safetensors.types(path)
        except OSError as error:
            raise UsageError(f"{path}: cannot read the state: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidError(f"{path}: cannot be read as saved state: {error}") from None
        wrong = None if partial else differing(self.states, stored)
        if wrong is not None:
            raise InvalidError(f"{path}: {wrong}; partial=True leaves states of one side alone aside")
        found = {}
        for name, slot in self.states.items():
            if name not in stored:
                continue
            raw, (dtype, shape) = stored[name], types[name]
            if (dtype, shape) != (safetensors.CODES[slot.spec.dtype], slot.spec.shape) or raw.size != slot.spec.nbytes:
                got = f"{dtype.lower()}[{','.join(map(str, shape))}]"
                raise InvalidError(f"{path}: expected {slot.spec}, got {got} of {raw.size} bytes")
            found[name] = typed(np.array(raw), slot.spec.dtype, slot.spec.shape)
        self.load_state(found, partial=True)

    def export_onnx(self, path: str | Path) -> None:
        """Write the model that was compiled, with its weights as they are now.

        Raises UsageError if the artifact was not compiled from an ONNX model, or `path` cannot be written.
        """
        import onnx

        path = path_of(path)
        source = self.manifest.path / SOURCE
        if not source.is_file():
            raise UsageError(f"{self.manifest.path}: was not compiled from an ONNX model, so there is none to export")
        try:
            model = onnx.load_model_from_string(content(self.manifest, SOURCE))
        except MemcError:
            raise
        except Exception as error:  # That of protobuf's parser is derived from no other.
            raise InvalidError(f"{source}: damaged: {' '.join(str(error).split())}; compile again") from None
        state = self.state()
        for tensor in model.graph.initializer:
            if tensor.name in state:
                tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name], tensor.name))
        try:
            large = model.ByteSize() > 2**31 - 2**20
            onnx.save(model, path, save_as_external_data=large, location=path.name + ".data" if large else None)
        except OSError as error:
            raise UsageError(f"{path}: cannot write the model: {error.strerror or error}") from None

    def _contents(self) -> dict[str, Array]:
        """The bytes of each space that states lie in: themselves on the CPU, a copy of a device's."""
        names = dict.fromkeys(slot.spec.space for slot in self.states.values())
        with device_errors(self.manifest, self.device, "reading the state"):
            return {n: content_of(self.machine, self.manifest.space(n), self.storages[n]) for n in names}

    def _checked(self, name: str, array: Array) -> Array:
        """The bytes of a new content."""
        spec = self.states[name].spec
        array = plain(array, f"state {spec}")
        if array.dtype != numpy_dtype(spec.dtype) or array.shape != spec.shape:
            raise UsageError(f"state {spec}: got {type_name(array)}{list(array.shape)}")
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def checked_rate(value: Any) -> Any:
    """A learning rate as the step takes it: numbers as f32, arrays as they are. Raises UsageError for one that is none; the
    content of a tensor on a device is not known here."""
    if is_real(value):
        return np.float32(require(value, Rate, RATE))
    array = value if isinstance(value, np.ndarray) else on_host(value)
    if array is not None and array.shape == () and array.dtype.kind == "f":
        require(array[()], Rate, RATE)
    return value


def on_host(value: Any) -> Array | None:
    """A DLPack tensor in the host's memory as an array; None for anything else."""
    try:
        return np.from_dlpack(value) if tuple(value.__dlpack_device__()) == (1, 0) else None
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError):
        return None


def differing(expected: Iterable[str], given: Iterable[str]) -> str | None:
    """How the names of states differ from those of the step; None if they do not."""
    wanted, there = set(expected), set(given)
    missing, others = sorted(wanted - there), sorted(there - wanted)
    said = []
    if missing:
        said.append(f"expected the state {missing[0]}, but it is not there{_more(missing, 'nor')}")
    if others:
        said.append(f"got the state {others[0]}{_more(others, 'and')}, which this step does not have")
    if not said:
        return None
    return f"{'; '.join(said)}; the step has {_listed(wanted)}; there are {_listed(there)}"


def _more(names: list[str], word: str) -> str:
    return f" ({word} {len(names) - 1} others)" if len(names) > 1 else ""


def _listed(names: set[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "") if found else "none"


def path_of(path: object) -> Path:
    """Raise UsageError for what is no path."""
    if not isinstance(path, (str, PathLike)):
        raise UsageError(f"expected the path of a file, got {path!r}")
    return Path(path)

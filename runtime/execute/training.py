# SPDX-License-Identifier: Apache-2.0
"""Running a compiled training step, and its state: weights, optimizer moments, statistics, counters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from memc.ir.checked_options import F32_MOST, Range, is_real, require
from memc.ir.errors import InvalidError, MemcError, UsageError
from memc.runtime.artifact.manifest import SOURCE, Spec
from memc.runtime.artifact.read import content
from memc.runtime.execute import labels
from memc.runtime.execute.labels import OUTSIDE
from memc.runtime.execute.load_code import Loaded
from memc.runtime.execute.stateful import Stateful, path_of

Array = npt.NDArray[Any]

RATE = "learning_rate"

DEFAULT_RATE = 0.01

Rate = Annotated[float, Range(least=0, most=F32_MOST)]
"""Learning rates: others turn every weight into nan, or make the loss grow."""


class TrainingStep(Stateful):
    """A compiled training step: call it with a batch and its labels; it updates its state and returns the loss.

    The learning rate is the attribute `learning_rate`, unless a call gives another.
    """

    def __init__(self, loaded: Loaded, shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(loaded, shared)
        self.learning_rate = DEFAULT_RATE

    @property
    def learning_rate(self) -> float:
        """The rate of steps that are not given another: a finite number from 0 on. Setting another raises UsageError."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._learning_rate: float = require(rate, Rate, "learning_rate")

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[tuple[Spec, Any]]:
        """Each input with its value, the learning rate checked where the host can see it."""
        return [
            (spec, checked_rate(v, spec.name) if is_rate(spec.name) else v) for spec, v in super().bind(args, kwargs)
        ]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """One step on a batch. Returns the loss, a float, or all results by name where there are others too.

        Raises UsageError for a wrong name, number, shape, element type or device of the inputs, and for a learning rate that
        is none.
        """
        self.require_host()
        for spec in self.inputs[len(args) :]:
            if is_rate(spec.name) and spec.name not in kwargs:
                kwargs[spec.name] = self.learning_rate
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
        other = super().session()
        assert isinstance(other, TrainingStep)
        other.learning_rate = self.learning_rate
        return other

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


def is_rate(name: str) -> bool:
    """Whether an input is a learning rate: the step's, or that of a parameter group."""
    return name == RATE or name.startswith(f"{RATE}.") and name.removeprefix(f"{RATE}.").isdecimal()


def checked_rate(value: Any, name: str = RATE) -> Any:
    """A learning rate as the step takes it: numbers as f32, arrays as they are. Raises UsageError for one that is none; the
    content of a tensor on a device is not known here."""
    if is_real(value):
        return np.float32(require(value, Rate, name))
    array = value if isinstance(value, np.ndarray) else on_host(value)
    if array is not None and array.shape == () and array.dtype.kind == "f":
        require(array[()], Rate, name)
    return value


def on_host(value: Any) -> Array | None:
    """A DLPack tensor in the host's memory as an array; None for anything else."""
    try:
        return np.from_dlpack(value) if tuple(value.__dlpack_device__()) == (1, 0) else None
    except (AttributeError, TypeError, ValueError, BufferError, RuntimeError):
        return None

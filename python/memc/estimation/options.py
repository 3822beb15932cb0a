# SPDX-License-Identifier: Apache-2.0
"""What is asked of a model, and of a script's run, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.errors import UsageError

from .models import Loop
from .phantom import Script


@dataclass(frozen=True)
class ModelOptions:
    """What was asked of a model."""

    train: bool = False
    optimizer: str | None = None
    dims: Mapping[str, int] | None = None
    framework: str | None = None
    tf32: bool = True
    zero_grad: str = "first"
    precision: str = "f32"
    accumulate: int = 1
    checkpoint: str | None = None
    channels_last: bool = False
    cudnn_benchmark: bool = False

    def refuse(self, other: object) -> None:
        """Raise UsageError for what is said of a model where there is none, and for another argument."""
        if self != ModelOptions() or other is not None:
            raise UsageError(f"{', '.join(vars(self))} and find_batch: expected with an .onnx model alone")

    def loop(self, device: int | None) -> Loop:
        """Raises UsageError."""
        if device is not None:
            raise UsageError("device: expected none with a model, which no recording of several devices is")
        training = {"optimizer": None, "accumulate": 1, "checkpoint": None}
        wrong = next((name for name, unset in training.items() if getattr(self, name) != unset), None)
        if not self.train and wrong is not None:
            raise UsageError(f"{wrong}: expected train with it, without which a model is only run")
        trained = (self.optimizer or "sgd") if self.train else None
        return Loop(
            trained,
            self.dims or {},
            self.framework or "pytorch-2.11",
            self.tf32,
            self.zero_grad,
            self.precision,
            self.accumulate,
            self.checkpoint,
            self.channels_last,
            self.cudnn_benchmark,
        )


@dataclass(frozen=True)
class ScriptOptions:
    """What was asked of a script's run."""

    steps: int | None
    python: str | None
    arguments: tuple[str, ...]
    show: bool
    alloc_conf: str | None
    world_size: int = 1
    """Ranks of a distributed job, of which the script is the first."""

    def refuse(self) -> None:
        """Raise UsageError for what is said of a script where there is none."""
        if self.steps is not None or self.python is not None or self.arguments or self.world_size != 1:
            raise UsageError("steps, python, arguments and world_size: expected with a .py script alone")

    def script(self, path: str, device: int | None) -> Script:
        """Raises UsageError."""
        if device is not None:
            raise UsageError("device: expected none with a script")
        steps = 3 if self.steps is None else self.steps
        return Script(path, self.arguments, steps, self.python, self.alloc_conf, world_size=self.world_size)

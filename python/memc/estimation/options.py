# SPDX-License-Identifier: Apache-2.0
"""What is asked of a model, and of a script's run, and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from memc.ir.errors import UsageError

from .models import Loop
from .phantom import Script, assume


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

    def refuse(self, other: object, hint: str = "") -> None:
        """Raise UsageError for what is said of a model where there is none, and for another argument."""
        wrong = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        if wrong:
            raise UsageError(f"{', '.join(wrong)}: expected with an .onnx model alone{hint}")
        if other is not None:
            raise UsageError("find_batch: expected with an .onnx model or a .py script alone")

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
    """Ranks of a distributed job."""
    rank: int = 0
    """Which of them the script is."""
    timeout: float | None = None
    """Seconds after which it is given up; None for the usual ones."""
    assume: Mapping[str, object] | None = None
    """Where its data or the time of kernels decides."""

    def refuse(self) -> None:
        """Raise UsageError for what is said of a script where there is none."""
        unset = {
            "steps": None,
            "python": None,
            "arguments": (),
            "world_size": 1,
            "rank": 0,
            "timeout": None,
            "assume": None,
        }
        wrong = [name for name, value in unset.items() if getattr(self, name) != value]
        if wrong:
            raise UsageError(f"{', '.join(wrong)}: expected with a .py script alone")

    def script(self, path: str, device: int | None) -> Script:
        """Raises UsageError."""
        if device is not None:
            raise UsageError("device: expected none with a script")
        steps = 3 if self.steps is None else self.steps
        made = Script(
            path,
            self.arguments,
            steps,
            self.python,
            self.alloc_conf,
            world_size=self.world_size,
            rank=self.rank,
            assume=assume(self.assume),
        )
        return made if self.timeout is None else replace(made, seconds=self.timeout)

# SPDX-License-Identifier: Apache-2.0
"""A training step while `build-gradient` writes it: what it takes, and the new content of its states."""

from __future__ import annotations

from dataclasses import dataclass, field

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Role, Value
from memc.ir.errors import UnsupportedError
from memc.ir.module import Module
from memc.ir.types import TensorType
from memc.passes.base import Finding
from memc.passes.kernels.recognize_attention import Attentions
from memc.passes.training.labels import LabelInput
from memc.passes.training.loss_scale import kept_unless

LOSS, LABELS, RATE, STEP, DRAWS = "loss", "labels", "learning_rate", "step", "dropout.counter"
OUTSIDE = "labels.outside"
"""Names of what a training step takes, returns and keeps."""


@dataclass(frozen=True)
class Training(Finding):
    """What a training step minimizes, for reports."""

    loss: str
    of: str
    """What the loss is of, in words."""
    left_out: str | None
    """The model's last activation, if the loss takes the scores before it."""
    labels: tuple[LabelInput, ...]
    attention: Attentions | None = None
    """What became of the model's attention; None if none was looked for."""


@dataclass
class TrainingStep:
    """A training step being written."""

    module: Module
    function: Function
    builder: IRBuilder
    assigned: dict[Value, Value] = field(default_factory=dict)
    """New content by state, in the order in which the states are met."""
    finite: Value | None = None
    """Whether the step is not to be skipped, bool[]; None if it never is."""

    def state(self, name: str, type: TensorType, content: Array) -> Value:
        taken = {p.name for p in self.function.params}
        if name in taken:
            raise UnsupportedError(f"training needs the name `{name}` for a state, but the model has a tensor of it")
        value = Value(name, type, role=Role.STATE)
        self.function.params.append(value)
        self.module.weights[name] = content
        return value

    def input(self, name: str, type: TensorType) -> Value:
        if name in {p.name for p in self.function.params}:
            raise UnsupportedError(f"training needs the name `{name}` for an input, but the model has a tensor of it")
        value = Value(name, type, role=Role.INPUT)
        self.function.params.append(value)
        return value

    def assign(self, state: Value, content: Value) -> None:
        """Give a state its new content; only the last counts, and it is written after all ops."""
        self.assigned[state] = content

    def update(self, state: Value, content: Value) -> Value:
        """Give a state that is not read any more its new content at once; what it then holds."""
        if self.finite is not None:
            content = kept_unless(self.builder, self.finite, state, content)
        self.assigned[state] = self.builder.op("assign", [state, content])
        return self.assigned[state]

    def is_written(self, content: Value) -> bool:
        """Whether a state holds that already."""
        return content.op is not None and content.op.name == "assign"

    def current(self, state: Value) -> Value:
        """What the state holds by now."""
        return self.assigned.get(state, state)

# SPDX-License-Identifier: Apache-2.0
"""Optimizer updates as ops: SGD with momentum (Sutskever et al. 2013), Adam (Kingma and Ba 2015), AdamW (Loshchilov and
Hutter 2019), in the form and with the defaults of PyTorch."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.checked_options import F32_LEAST, F32_MOST, Checked, Range
from memc.ir.core import Array, Value
from memc.ir.errors import UsageError
from memc.ir.ops.shared.casts import cast
from memc.ir.ops.shared.derivatives import scaled, square
from memc.ir.types import DType, TensorType

OptimizerName = Literal["none", "sgd", "adam", "adamw"]
OPTIMIZERS: tuple[OptimizerName, ...] = ("none", "sgd", "adam", "adamw")

Decay = Annotated[float, Range(least=0, below=1)]
"""What remains of a running average after a step."""
NotNegative = Annotated[float, Range(least=0, most=F32_MOST)]
Positive = Annotated[float, Range(least=F32_LEAST, most=F32_MOST)]
"""More than 0, as f32 too, in which updates are computed."""

_ADAM = ("weight_decay", "no_decay", "beta1", "beta2", "epsilon")
_TAKES: dict[OptimizerName, tuple[str, ...]] = {
    "none": (),
    "sgd": ("momentum", "nesterov", "weight_decay", "no_decay"),
    "adam": _ADAM,
    "adamw": _ADAM,
}
"""Options by optimizer."""


@dataclass(frozen=True)
class Optimizer(Checked):
    """What is computed from each weight w and its gradient g at learning rate r in step t = 1, 2 ..."""

    kind: OptimizerName = "sgd"
    momentum: Decay = 0.0
    nesterov: bool = False
    weight_decay: NotNegative = 0.0
    no_decay: tuple[str, ...] = ()
    """Name patterns of weights that do not decay."""
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Positive = 1e-8

    def owner(self) -> str:
        """What messages call it."""
        return "optimizer"

    def check(self) -> None:
        """Raise UsageError for an option that the optimizer does not have."""
        for option in fields(self)[1:]:
            if getattr(self, option.name) != option.default and option.name not in _TAKES[self.kind]:
                takes = ", ".join(_TAKES[self.kind]).replace("_", "-") or "no options"
                name = option.name.replace("_", "-")
                raise UsageError(f"optimizer {self.kind}: has no option {name}; it takes {takes}")
        if self.nesterov and not self.momentum:
            raise UsageError("optimizer sgd: nesterov needs a momentum above 0")

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the states kept for each weight."""
        if self.kind in ("adam", "adamw"):
            return ("exp_avg", "exp_avg_sq")
        return ("momentum",) if self.kind == "sgd" and self.momentum else ()

    def of(self, weight: str) -> Optimizer:
        """What it is for one weight: without decay for one that does not decay."""
        if self.weight_decay and any(fnmatch.fnmatchcase(weight, pattern) for pattern in self.no_decay):
            return replace(self, weight_decay=0.0, no_decay=())
        return self

    @property
    def counts_steps(self) -> bool:
        """Whether an update needs the number of the step."""
        return self.kind in ("adam", "adamw")


StateFn = Callable[[str, TensorType, Array], Value]
"""Makes a state parameter of a name, a type and its first content."""
AssignFn = Callable[[Value, Value], Value]
"""Gives a state its new content, and hands it back as it is read in the state itself: then it needs no other bytes."""


def append_updates(
    b: IRBuilder,
    optimizer: Optimizer,
    gradients: Sequence[tuple[Value, Value]],
    rate: Value,
    step: Value | None,
    state: StateFn,
    assign: AssignFn,
) -> None:
    """Update each (weight, gradient). `rate` is f32[]; `step`, an f64[] that is 1 in the first step, only for Adam."""
    scales = _adam_scales(b, optimizer, rate, step) if step is not None else None
    for weight, gradient in gradients:
        states = [state(f"{weight.name}.{name}", weight.type, _zeros(weight.type)) for name in optimizer.state_names]
        if scales is not None:
            _adam(b, optimizer.of(weight.name), weight, gradient, rate, scales, states, assign)
        else:
            _sgd(b, optimizer.of(weight.name), weight, gradient, rate, states, assign)


def _zeros(type: TensorType) -> Array:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape)


def _by(b: IRBuilder, x: Value, factor: Value) -> Value:
    """x times a scalar f32."""
    return b.op("mul", [x, cast(b, factor, x.type.dtype)])


def _sgd(
    b: IRBuilder, o: Optimizer, weight: Value, g: Value, rate: Value, states: Sequence[Value], assign: AssignFn
) -> None:
    if o.weight_decay:
        g = b.op("add", [g, scaled(b, weight, o.weight_decay)])
    if states:
        moved = assign(states[0], b.op("add", [scaled(b, states[0], o.momentum), g]))
        g = b.op("add", [g, scaled(b, moved, o.momentum)]) if o.nesterov else moved
    assign(weight, b.op("sub", [weight, _by(b, g, rate)]))


def _adam_scales(b: IRBuilder, o: Optimizer, rate: Value, step: Value) -> tuple[Value, Value]:
    """rate / (1 - beta1^t), and 1 / sqrt(1 - beta2^t): by way of f64, for 1 - 0.999 has lost four digits in f32."""
    one = b.scalar(1.0, DType.F64)
    first, second = (b.op("sub", [one, b.op("pow", [b.scalar(beta, DType.F64), step])]) for beta in (o.beta1, o.beta2))
    scales = (b.op("div", [cast(b, rate, DType.F64), first]), b.op("rsqrt", [second]))
    return cast(b, scales[0], DType.F32), cast(b, scales[1], DType.F32)


def _adam(
    b: IRBuilder,
    o: Optimizer,
    weight: Value,
    g: Value,
    rate: Value,
    scales: tuple[Value, Value],
    states: Sequence[Value],
    assign: AssignFn,
) -> None:
    base = weight
    if o.weight_decay and o.kind == "adam":
        g = b.op("add", [g, scaled(b, weight, o.weight_decay)])
    elif o.weight_decay:
        base = b.op("sub", [weight, _by(b, scaled(b, weight, o.weight_decay), rate)])
    first = assign(states[0], b.op("add", [scaled(b, states[0], o.beta1), scaled(b, g, 1 - o.beta1)]))
    second = assign(states[1], b.op("add", [scaled(b, states[1], o.beta2), scaled(b, square(b, g), 1 - o.beta2)]))
    deviation = b.op("add", [_by(b, b.op("sqrt", [second]), scales[1]), b.scalar(o.epsilon, g.type.dtype)])
    assign(weight, b.op("sub", [base, b.op("div", [_by(b, first, scales[0]), deviation])]))

# SPDX-License-Identifier: Apache-2.0
"""What an optimizer's rule states: the states of a weight, the numbers that all weights share, and the update of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Value
from memc.ir.ops.shared.casts import cast
from memc.ir.ops.shared.derivatives import scaled
from memc.ir.types import DType, TensorType
from memc.passes.training.optimizers import Optimizer

StateFn = Callable[[str, TensorType, Array], Value]
"""Makes a state parameter of a name, a type and its first content."""
AssignFn = Callable[[Value, Value], Value]
"""Gives a state its new content, and hands it back as it is read in the state itself: then it needs no other bytes."""

First = Mapping[str, tuple[TensorType, float]]
"""States by name, each of a type and filled with a number."""


@dataclass(frozen=True)
class Clock:
    """What a step's updates have in common."""

    b: IRBuilder
    rate: Value
    """The learning rate, f32[]."""
    step: Value | None
    """The number of the step from 1, f64[]; None for rules that do not count."""
    shared: Callable[[str, float], Value]
    """A state f64[] that all weights share, of a name and a first number."""
    assign: AssignFn

    def power(self, base: float, exponent: Value | None = None) -> Value:
        """A number to the power of the step's, or another, as f64."""
        exponent = exponent or self.step
        assert exponent is not None
        return self.b.op("pow", [self.f64(base), exponent])

    def f64(self, number: float) -> Value:
        """A constant."""
        return self.b.scalar(number, DType.F64)

    def op(self, name: str, *operands: Value | float) -> Value:
        """An op of f64 numbers, for f32 has lost four digits of 1 - 0.999."""
        return self.b.op(name, [v if isinstance(v, Value) else self.f64(v) for v in operands])

    def wide_rate(self) -> Value:
        """The learning rate as f64."""
        return cast(self.b, self.rate, DType.F64)

    def f32(self, *numbers: Value) -> tuple[Value, ...]:
        """Numbers as the updates read them."""
        return tuple(cast(self.b, number, DType.F32) for number in numbers)


@dataclass(frozen=True)
class Site:
    """One weight, where its update is written."""

    b: IRBuilder
    options: Optimizer
    weight: Value
    gradient: Value
    rate: Value
    """The learning rate, f32[]."""
    scalars: Sequence[Value]
    """What the rule's `scalars` made."""
    states: Mapping[str, Value]
    assign: AssignFn

    def by(self, x: Value, factor: Value | float) -> Value:
        """x times a number that all elements share."""
        if isinstance(factor, Value):
            return self.b.op("mul", [x, cast(self.b, factor, x.type.dtype)])
        return scaled(self.b, x, factor)

    def op(self, name: str, *operands: Value | float) -> Value:
        """An op; numbers are constants of the weight's type."""
        dtype = self.weight.type.dtype
        return self.b.op(name, [v if isinstance(v, Value) else self.b.scalar(v, dtype) for v in operands])

    def mean(self, state: str, x: Value, keep: float) -> Value:
        """Move a running mean by x: keep * state + (1 - keep) * x."""
        old = self.states[state]
        return self.assign(old, self.op("add", self.by(old, keep), self.by(x, 1 - keep)))

    def decayed_gradient(self) -> Value:
        """The gradient with the weight's decay in it."""
        decay = self.options.weight_decay
        return self.op("add", self.gradient, self.by(self.weight, decay)) if decay else self.gradient

    def decayed_weight(self) -> Value:
        """The weight after a decay of its own: w - rate * decay * w."""
        decay = self.options.weight_decay
        if not decay:
            return self.weight
        return self.op("sub", self.weight, self.by(self.by(self.weight, decay), self.rate))


def no_scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    """Of a rule that needs the learning rate alone."""
    return ()


@dataclass(frozen=True)
class UpdateRule:
    """An optimizer's rule."""

    states: Callable[[Optimizer, TensorType], First]
    """Of a weight of a type."""
    update: Callable[[Site], None]
    scalars: Callable[[Clock, Optimizer], Sequence[Value]] = no_scalars
    """What the updates of all weights read; `Optimizer` is without what differs from weight to weight."""
    counts: bool = False
    """Whether it needs the number of the step."""


def zeros_like(*names: str) -> Callable[[Optimizer, TensorType], First]:
    """States of a weight's own type that begin as zeros."""
    return lambda options, type: {name: (type, 0.0) for name in names}


def filled(type: TensorType, number: float) -> Array:
    """A tensor of one number that takes no memory."""
    return np.broadcast_to(np.asarray(number, type.dtype.numpy), type.shape)

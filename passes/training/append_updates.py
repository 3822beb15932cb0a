# SPDX-License-Identifier: Apache-2.0
"""The end of a training step: gradients are unscaled and clipped, and each weight is updated by the rule of its group's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.ops.shared.derivatives import scaled, square
from memc.ir.types import DType, TensorType
from memc.passes.training import loss_scale as scaling
from memc.passes.training.groups import Group, group_of
from memc.passes.training.optimizers import Optimizer
from memc.passes.training.step_builder import DRAWS, RATE, STEP, TrainingStep
from memc.passes.training.updates.rule import Clock, Site, UpdateRule, filled
from memc.passes.training.updates.rules import RULES

Gradients = list[tuple[Value, Value]]
"""Weights with their gradients."""

NormName = Literal["2", "inf"]


@dataclass(frozen=True)
class Clipping:
    """What gradients are limited to before the update."""

    norm: float | None = None
    """Largest norm of all gradients together."""
    kind: NormName = "2"
    """The norm: the root of the sum of squares, or the largest magnitude."""
    value: float | None = None
    """Largest magnitude of an element; the norm is of what is left."""


def append_updates(
    step: TrainingStep,
    optimizer: Optimizer,
    groups: Sequence[Group],
    gradients: Gradients,
    scale: scaling.LossScale | None,
    clipping: Clipping,
    outside: Value | None,
) -> Gradients:
    """The updates by the gradients, which are skipped where a gradient is not finite or labels lie `outside` the classes.
    Returns the gradients as the optimizer takes them."""
    b = step.builder
    finite = None
    if scale is not None:
        gradients, finite = scaling.unscaled(b, scale, gradients)
    gradients = _clipped(b, gradients, clipping)
    counts = optimizer.kind != "none" and RULES[optimizer.kind].counts
    counter = _counter(step) if counts else None
    good = None if outside is None else b.op("equal", [outside, b.scalar(0, DType.I64)])
    if good is not None:
        finite = good if finite is None else b.op("logical_and", [finite, good])
    if optimizer.kind != "none":
        step.finite = finite
        _update_all(step, [Group((), optimizer), *groups], gradients, counter)
    if finite is not None:
        _skip_unless(step, scale, finite, good)
    return gradients


@dataclass(frozen=True)
class _Shared:
    """What the weights of one setting share."""

    rate: Value
    scalars: Sequence[Value]


def _update_all(step: TrainingStep, groups: Sequence[Group], gradients: Gradients, counter: Value | None) -> None:
    """Update each weight; `groups[0]` has what is in no other."""
    rule = RULES[groups[0].optimizer.kind]
    numbers = [group_of(weight.name, groups[1:]) for weight, _ in gradients]
    rates = _rates(step, groups)
    shared: dict[tuple[Value, Optimizer], _Shared] = {}
    for number, (weight, gradient) in zip(numbers, gradients):
        options = groups[number].optimizer.of(weight.name)
        # Weights whose options differ in what no scalar depends on share them.
        key = (rates[number], replace(options, weight_decay=0.0, maximize=False))
        if key not in shared:
            clock = _clock(step, rates[number], counter, len(shared))
            shared[key] = _Shared(rates[number], rule.scalars(clock, key[1]))
        _update(step, rule, options, weight, gradient, shared[key])


def _rates(step: TrainingStep, groups: Sequence[Group]) -> list[Value]:
    """The learning rates of groups."""
    rate = step.input(RATE, TensorType(DType.F32, ()))
    found = [rate]
    for number, group in enumerate(groups[1:], 1):
        own = step.input(f"{RATE}.{number}", TensorType(DType.F32, ())) if group.own_rate else rate
        found.append(own if group.rate == 1 else scaled(step.builder, own, group.rate))
    return found


def _clock(step: TrainingStep, rate: Value, counter: Value | None, place: int) -> Clock:
    def shared(name: str, number: float) -> Value:
        chosen = f"{name}.{place}" if place else name
        return step.state(chosen, TensorType(DType.F64, ()), np.array(number, np.float64))

    return Clock(step.builder, rate, counter, shared, step.update)


def _update(
    step: TrainingStep, rule: UpdateRule, options: Optimizer, weight: Value, gradient: Value, shared: _Shared
) -> None:
    b = step.builder
    states = {
        name: step.state(f"{weight.name}.{name}", type, filled(type, first))
        for name, (type, first) in rule.states(options, weight.type).items()
    }
    gradient = b.op("neg", [gradient]) if options.maximize else gradient
    rule.update(Site(b, options, weight, gradient, shared.rate, shared.scalars, states, step.update))


def _clipped(b: IRBuilder, gradients: Gradients, clipping: Clipping) -> Gradients:
    if clipping.value is not None:
        least, most = -clipping.value, clipping.value
        gradients = [(w, _between(b, g, least, most)) for w, g in gradients]
    if clipping.norm is None or not gradients:
        return gradients
    norm = b.op("add", [_norm(b, [g for _, g in gradients], clipping.kind), b.scalar(1e-6, DType.F32)])
    factor = b.op("min", [b.op("div", [b.scalar(clipping.norm, DType.F32), norm]), b.scalar(1.0, DType.F32)])
    return [(w, b.op("mul", [g, cast(b, factor, g.type.dtype)])) for w, g in gradients]


def _between(b: IRBuilder, x: Value, least: float, most: float) -> Value:
    """x within limits, as PyTorch's clip_grad_value_ has it."""
    return b.op("min", [b.op("max", [x, b.scalar(least, x.type.dtype)]), b.scalar(most, x.type.dtype)])


def _norm(b: IRBuilder, gradients: Sequence[Value], kind: NormName) -> Value:
    """The norm of all gradients together, f32[]: that of PyTorch's clip_grad_norm_, which scales by min(1, limit / (norm + 1e-6))."""
    reduction, joins = ("reduce_sum", "add") if kind == "2" else ("reduce_max", "max")
    total = None
    for g in gradients:
        wide = cast(b, g, DType.F32)
        term = square(b, wide) if kind == "2" else b.op("abs", [wide])
        if g.type.rank:
            term = b.op(reduction, [term], axes=tuple(range(g.type.rank)), keepdims=False)
        total = term if total is None else b.op(joins, [total, term])
    assert total is not None
    return b.op("sqrt", [total]) if kind == "2" else total


def _skip_unless(step: TrainingStep, scale: scaling.LossScale | None, finite: Value, good: Value | None) -> None:
    """Leave all states as they are where a gradient is not finite, but for dropout's counter and the scale's own; that too
    where a label is not `good`."""
    for state, content in step.assigned.items():
        if state.name != DRAWS and not step.is_written(content):
            step.assign(state, scaling.kept_unless(step.builder, finite, state, content))
    if scale is None:
        return
    for state, content in scaling.moved(step.builder, scale, finite).items():
        step.assign(state, content if good is None else scaling.kept_unless(step.builder, good, state, content))


def _counter(step: TrainingStep) -> Value:
    """The number of this step, from 1, as f64; the state holds how many were taken."""
    b = step.builder
    taken = step.state(STEP, TensorType(DType.I64, ()), np.zeros((), np.int64))
    now = b.op("add", [taken, b.scalar(1, DType.I64)])
    step.assign(taken, now)
    return cast(b, now, DType.F64)

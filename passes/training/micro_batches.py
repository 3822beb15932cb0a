# SPDX-License-Identifier: Apache-2.0
"""The forward and backward ops of a training step, micro-batch by micro-batch: what each is given, computes, and leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.core import Op, Role, Value
from memc.ir.errors import UnsupportedError
from memc.ir.ops.shared.casts import HALF, cast
from memc.ir.ops.shared.derivatives import scaled
from memc.ir.types import DType
from memc.passes.training.backward_pass import append_gradients
from memc.passes.training.dropout_seeds import first_count
from memc.passes.training.labels import LabelInput
from memc.passes.training.loss_scale import LossScale, scaled_loss
from memc.passes.training.losses import Loss
from memc.passes.training.scores import without_unread
from memc.passes.training.step_builder import DRAWS, LABELS, TrainingStep


def split(step: TrainingStep, value: Value, parts: int, given: bool = False) -> list[Value]:
    """An input's micro-batches; `given` says that its type counts all of them already."""
    if parts == 1:
        return [value]
    if value.type.rank == 0:
        raise UnsupportedError(f"input `{value.name}`: expected an axis of micro-batches, got a scalar")
    batch = value.type.shape[0] // parts if given else value.type.shape[0]
    if not given:
        value.type = value.type.with_shape((batch * parts, *value.type.shape[1:]))
    found = []
    for number in range(parts):
        starts = (number * batch, *[0] * (value.type.rank - 1))
        stops = ((number + 1) * batch, *value.type.shape[1:])
        found.append(step.builder.op("slice", [value], starts=starts, stops=stops, steps=(1,) * value.type.rank))
    return found


def draws(step: TrainingStep, shared: Value | None, seed: int, parts: int) -> list[dict[Value, Value]]:
    """For each micro-batch, what stands for the seed that its dropout shares."""
    if shared is None:
        return [{}] * parts
    b = step.builder
    counter = step.state(DRAWS, shared.type, np.array(first_count(seed)))
    counts = [counter, *(b.op("add", [counter, b.scalar(n, DType.I64)]) for n in range(1, parts + 1))]
    step.assign(counter, counts.pop())
    return [{shared: count} for count in counts]


@dataclass(frozen=True)
class Minimized:
    """A loss of the scores that the model's ops compute, and the weights that are to lower it."""

    forward: Sequence[Op]
    scores: Value
    loss: Loss
    weights: Sequence[Value]
    kept: Sequence[Value] = ()
    """Other results of the forward pass that the step returns."""


@dataclass(frozen=True)
class Batches:
    """What each of a step's micro-batches is given."""

    given: Sequence[Mapping[Value, Value]]
    """Its part of each input, and what its dropout draws from."""
    labels: Sequence[Value | None]
    all_labels: Value | None
    """None where the loss takes no labels."""

    @classmethod
    def of(cls, step: TrainingStep, minimized: Minimized, parts: int, shared: Value | None, seed: int) -> Batches:
        """The parts of all inputs, and of the labels, which become one. `shared`: the seed of all dropout."""
        inputs = step.function.params_of(Role.INPUT)
        batches = [split(step, value, parts) for value in inputs]
        all_labels = None
        labels: list[Value | None] = [None] * parts
        label_type = minimized.loss.label_type(minimized.scores.type, parts)
        if label_type is not None:
            all_labels = step.input(LABELS, label_type)
            labels = [*split(step, all_labels, parts, given=True)]
        drawn = draws(step, shared, seed, parts)
        given = [{**{v: b[n] for v, b in zip(inputs, batches)}, **drawn[n]} for n in range(parts)]
        return cls(given, labels, all_labels)

    def label_inputs(self, minimized: Minimized) -> list[LabelInput]:
        """The labels among the step's inputs."""
        return [] if self.all_labels is None else [minimized.loss.labels_of(self.all_labels, minimized.scores.type)]


def backward(
    step: TrainingStep, minimized: Minimized, batches: Batches, scale: LossScale | None
) -> tuple[list[Value], dict[Value, Value], list[Value]]:
    """Forward and backward ops of all micro-batches: their losses, the sum of the gradients by weight, and what is kept of their
    results, along axis 0."""
    count = len(batches.given)
    divisor = minimized.loss.divisor(step.builder, minimized.scores.type, batches.all_labels, count)
    losses: list[Value] = []
    sums: dict[Value, Value] = {}
    kept: list[list[Value]] = []
    for given, labels in zip(batches.given, batches.labels):
        loss, gradients, results = _one_batch(step, minimized, given, labels, divisor, scale, first=not losses)
        losses.append(loss)
        kept.append(results)
        for weight, gradient in gradients.items():
            sums[weight] = step.builder.op("add", [sums[weight], gradient]) if weight in sums else gradient
    return losses, sums, [_joined(step, parts) for parts in zip(*kept)]


def _joined(step: TrainingStep, parts: Sequence[Value]) -> Value:
    """A result of all micro-batches along axis 0, which results without axes get."""
    if len(parts) == 1:
        return parts[0]
    b = step.builder
    return b.op("concat", [v if v.type.rank else b.op("reshape", [v], shape=(1,)) for v in parts], axis=0)


def _one_batch(
    step: TrainingStep,
    minimized: Minimized,
    given: Mapping[Value, Value],
    labels: Value | None,
    divisor: Value | None,
    scale: LossScale | None,
    first: bool,
) -> tuple[Value, dict[Value, Value], list[Value]]:
    """Forward and backward ops of one micro-batch: its loss, its gradients by weight, and what is kept of its results."""
    function, b = step.function, step.builder
    mapping = dict(given)
    start = len(function.ops)
    for op in minimized.forward:
        mapping.update(zip(op.results, _copied(step, op, mapping, first)))
    scores = mapping.get(minimized.scores, minimized.scores)
    kept = [mapping.get(value, value) for value in minimized.kept]
    loss = minimized.loss.append(b, scores, labels, divisor)
    function.ops[start:] = without_unread(
        function.ops[start:], scores, [loss, *kept]
    )  # Where the loss takes what they were made of.
    begin = loss if scale is None else scaled_loss(b, scale, loss)
    found = append_gradients(step.module, function, begin, minimized.weights, function.ops[start:], b.names)
    if scale is not None:
        return loss, dict(found), kept
    return loss, {weight: _unrounded(gradient) for weight, gradient in found.items()}, kept


def _copied(step: TrainingStep, op: Op, mapping: Mapping[Value, Value], first: bool) -> Sequence[Value]:
    """The op for one micro-batch: itself in the first one. Batch normalization then takes the batch's statistics."""
    b = step.builder
    operands = [mapping.get(v, v) for v in op.operands]
    b.location = op.location
    if op.name == "batch_norm" and all(v.role is Role.STATE for v in op.operands[3:]):
        return [_batch_norm(step, op, operands)]
    if op.name == "constant" and not first:
        return op.results
    results = op.results if first else [Value(next(b.names), v.type) for v in op.results]
    step.function.ops.append(Op(op.name, operands, list(results), dict(op.attrs), op.plan, location=op.location))
    return results


def _batch_norm(step: TrainingStep, op: Op, operands: Sequence[Value]) -> Value:
    """Normalization by the batch's own statistics, which also move the running ones (PyTorch: the unbiased variance)."""
    b = step.builder
    attrs = {key: op.attrs[key] for key in op.attrs if key not in ("momentum",)}
    made = b.multi("batch_norm_training", operands[:3], op.plan, **attrs)
    y, mean, _, variance = made.results
    x = operands[0].type
    samples = x.elements // x.shape[1]
    kept = op.attrs["momentum"]
    assert isinstance(kept, float)
    for state, value, factor in (
        (op.operands[3], mean, 1.0),
        (op.operands[4], variance, samples / max(samples - 1, 1)),
    ):
        old = step.current(state)
        moved = scaled(b, cast(b, value, old.type.dtype), (1 - kept) * factor)
        step.assign(state, b.op("add", [scaled(b, old, kept), moved]))
    return y


def _unrounded(gradient: Value) -> Value:
    """The gradient of a weight in f32 that is read as half, without its rounding to half on the way. That of a convolution
    keeps it: libraries compute it in half."""
    rounded = _cast_from(gradient, HALF)
    source = None if rounded is None else _cast_from(rounded, (gradient.type.dtype,))
    if source is None or source.op is None or source.op.name == "conv_grad_weight":
        return gradient
    return source


def _cast_from(value: Value, types: Sequence[DType]) -> Value | None:
    """What a cast was of, if of one of `types`."""
    op = value.op
    return op.operands[0] if op is not None and op.name == "cast" and op.operands[0].type.dtype in types else None

# SPDX-License-Identifier: Apache-2.0
"""The forward and backward ops of a training step, micro-batch by micro-batch: what each is given, computes, and leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from memc.ir.core import Op, Role, Value
from memc.ir.errors import UnsupportedError
from memc.ir.ops.rules.casts import HALF, cast
from memc.ir.ops.rules.derivatives import scaled
from memc.ir.types import DType
from memc.passes.training.dropout_seeds import first_count
from memc.passes.training.gradient import append_gradients
from memc.passes.training.loss_scale import LossScale, scaled_loss
from memc.passes.training.losses import Loss
from memc.passes.training.step_builder import DRAWS, TrainingStep


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


def one_batch(
    step: TrainingStep,
    forward: Sequence[Op],
    given: Mapping[Value, Value],
    logits: Value,
    labels: Value | None,
    loss: Loss,
    divisor: Value | None,
    scale: LossScale | None,
    trained: Sequence[Value],
    sums: dict[Value, Value],
    first: bool,
) -> Value:
    """Forward and backward ops of one micro-batch, its gradients added to `sums`. Returns the loss."""
    function, b = step.function, step.builder
    mapping = dict(given)
    start = len(function.ops)
    for op in forward:
        mapping.update(zip(op.results, _copied(step, op, mapping, first)))
    made = loss.append(b, mapping.get(logits, logits), labels, divisor)
    start_of_backward = made if scale is None else scaled_loss(b, scale, made)
    found = append_gradients(step.module, function, start_of_backward, trained, function.ops[start:], b.names)
    for weight, gradient in found.items():
        gradient = _unrounded(gradient) if scale is None else gradient
        sums[weight] = b.op("add", [sums[weight], gradient]) if weight in sums else gradient
    return made


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
    step.function.ops.append(Op(op.name, operands, list(results), dict(op.attrs), location=op.location))
    return results


def _batch_norm(step: TrainingStep, op: Op, operands: Sequence[Value]) -> Value:
    """Normalization by the batch's own statistics, which also move the running ones (PyTorch: the unbiased variance)."""
    b = step.builder
    attrs = {key: op.attrs[key] for key in op.attrs if key not in ("momentum",)}
    made = b.multi("batch_norm_training", operands[:3], **attrs)
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

# SPDX-License-Identifier: Apache-2.0
"""Losses: what a training step minimizes, as one number from what a model computes and what it should.

Half precision is computed in f32. Each loss appends ops to the builder and returns a rank-0 value.
"""

from __future__ import annotations

import math
from typing import Literal

from memc.ir.build import IRBuilder
from memc.ir.core import Value
from memc.ir.errors import UnsupportedError
from memc.ir.ops.casts import cast, widen
from memc.ir.ops.derivatives import one_minus, scaled, square
from memc.ir.types import DType, TensorType

LOSSES = ("softmax-cross-entropy", "mse", "bce", "bce-with-logits")
LossName = Literal["softmax-cross-entropy", "mse", "bce", "bce-with-logits"]

Reduction = Literal["mean", "sum"]

LEAST_LOG = -100.0
"""What logarithms of probabilities are cut off at, as in PyTorch: so a probability of 0 has a finite loss."""


def label_type(loss: LossName, logits: TensorType, parts: int) -> TensorType:
    """What a loss of `logits` takes as labels, those of `parts` micro-batches together."""
    if logits.rank == 0 or not logits.dtype.is_float:
        raise UnsupportedError(f"expected a result of floats with a batch axis to train on, got {logits}")
    shape = (logits.shape[0] * parts, *logits.shape[1:])
    if loss != "softmax-cross-entropy":
        return logits.with_shape(shape)
    if logits.rank < 2:
        raise UnsupportedError(f"softmax-cross-entropy: expected logits [N, classes, ...], got {logits}")
    return TensorType(DType.I64, (shape[0], *shape[2:]))


def append_loss(b: IRBuilder, loss: LossName, logits: Value, labels: Value) -> Value:
    """A loss by its name."""
    if loss == "softmax-cross-entropy":
        return softmax_cross_entropy(b, logits, labels)
    if loss == "mse":
        return mean_squared_error(b, logits, labels)
    return binary_cross_entropy(b, logits, labels, from_logits=loss == "bce-with-logits")


def softmax_cross_entropy(
    b: IRBuilder,
    logits: Value,
    labels: Value,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """Cross entropy of softmax(logits) with integer labels; `logits` [N, C, ...], `labels` [N, ...] of i32 or i64.

    Samples whose label is `ignore_index` do not count, in the mean neither: that of none is nan.
    """
    attrs = {"ignore_index": ignore_index, "label_smoothing": float(label_smoothing)}
    losses = b.multi("softmax_cross_entropy", [logits, labels], **attrs).results[0]
    total = _sum(b, losses)
    if reduction == "sum":
        return total
    counted = b.op("not_equal", [labels, b.scalar(ignore_index, labels.type.dtype)])
    return b.op("div", [total, _sum(b, cast(b, counted, total.type.dtype))])


def mean_squared_error(b: IRBuilder, x: Value, target: Value, reduction: Reduction = "mean") -> Value:
    """(x - target) squared. Raises UnsupportedError unless the two have one type."""
    _same_type(x, target)
    return _reduced(b, square(b, b.op("sub", [widen(b, x), widen(b, target)])), reduction)


def binary_cross_entropy(
    b: IRBuilder, x: Value, target: Value, from_logits: bool, reduction: Reduction = "mean"
) -> Value:
    """-(t log(p) + (1 - t) log(1 - p)) of targets t in [0, 1], where p is `x`, or sigmoid(x) if `from_logits`.

    From logits it is softplus(x) - t x, which does not overflow. Raises UnsupportedError unless the two have one type.
    """
    _same_type(x, target)
    wide, t = widen(b, x), widen(b, target)
    if from_logits:
        loss = b.op("sub", [b.op("softplus", [wide]), b.op("mul", [t, wide])])
        return _reduced(b, loss, reduction)
    least = b.scalar(LEAST_LOG, wide.type.dtype)
    yes, no = (b.op("max", [b.op("log", [p]), least]) for p in (wide, one_minus(b, wide)))
    loss = b.op("add", [b.op("mul", [t, yes]), b.op("mul", [one_minus(b, t), no])])
    return scaled(b, _reduced(b, loss, reduction), -1)


def _same_type(x: Value, target: Value) -> None:
    if x.type != target.type or not x.type.dtype.is_float:
        raise UnsupportedError(f"loss: expected a target of the prediction's type {x.type}, got {target.type}")


def _sum(b: IRBuilder, x: Value) -> Value:
    if x.type.rank == 0:
        return x
    return b.op("reduce_sum", [x], axes=tuple(range(x.type.rank)), keepdims=False)


def _reduced(b: IRBuilder, x: Value, reduction: Reduction) -> Value:
    total = _sum(b, x)
    return total if reduction == "sum" else scaled(b, total, 1 / max(math.prod(x.type.shape), 1))

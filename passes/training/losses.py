# SPDX-License-Identifier: Apache-2.0
"""Losses: what a training step minimizes, as one number from what a model computes and what it should.

Half precision is computed in f32. Each loss appends ops to the builder and returns a rank-0 value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Checked, Range
from memc.ir.core import Value
from memc.ir.errors import UnsupportedError
from memc.ir.ops.shared.casts import HALF, cast, widen
from memc.ir.ops.shared.derivatives import scaled, square
from memc.ir.ops.shared.window import accumulator
from memc.ir.types import DType, TensorType
from memc.passes.training.labels import LabelInput

LOSSES = ("softmax-cross-entropy", "mse", "bce", "bce-with-logits", "output")
LossName = Literal["softmax-cross-entropy", "mse", "bce", "bce-with-logits", "output"]
"""`output`: the model's result is the loss."""

LABEL_KINDS = ("classes", "probabilities")
LabelKind = Literal["classes", "probabilities"]
"""What softmax-cross-entropy is told of a sample: the number of its class, or the probability of each."""

IGNORED = -100
"""The label that does not count, unless another is chosen: PyTorch's."""

Label = Annotated[int, Range(least=-(2**63), most=2**63 - 1)]

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class Loss(Checked):
    """A loss and its options."""

    name: LossName = "softmax-cross-entropy"
    labels: LabelKind = "classes"
    ignore_index: Label = IGNORED

    def owner(self) -> str:
        """What messages call it."""
        return "build-gradient"

    def label_type(self, scores: TensorType, parts: int) -> TensorType | None:
        """What a loss of `scores` takes as labels, those of `parts` micro-batches together; None if it takes none.

        Raises UnsupportedError for scores that it cannot be of.
        """
        if self.name == "output":
            if not scores.dtype.is_float or scores.elements != 1:
                raise UnsupportedError(f"loss output: expected a result of one float to minimize, got {scores}")
            return None
        if scores.rank == 0 or not scores.dtype.is_float:
            hint = "; a result that is the loss itself is trained with loss output" if scores.dtype.is_float else ""
            raise UnsupportedError(f"expected a result of floats with a batch axis to train on, got {scores}{hint}")
        shape = (scores.shape[0] * parts, *scores.shape[1:])
        if self.name != "softmax-cross-entropy":
            return scores.with_shape(shape)
        if scores.rank < 2:
            raise UnsupportedError(f"softmax-cross-entropy: expected logits [N, classes, ...], got {scores}")
        if self.labels == "probabilities":
            return scores.with_shape(shape)
        return TensorType(DType.I64, (shape[0], *shape[2:]))

    def labels_of(self, labels: Value, scores: TensorType) -> LabelInput:
        """What the input `labels` must hold."""
        if labels.type.dtype.is_float:
            return LabelInput(labels.name, None, None)
        return LabelInput(labels.name, scores.shape[1], self.ignore_index)

    def divisor(self, b: IRBuilder, scores: TensorType, labels: Value | None, parts: int) -> Value | None:
        """What each of several micro-batches divides its sum by, so that the mean of their losses is that of all samples
        that count, as if they were one batch; None where each takes its own mean."""
        if parts == 1 or labels is None or self.name != "softmax-cross-entropy" or self.labels != "classes":
            return None
        return scaled(b, _count(b, labels, self.ignore_index, accumulator(scores.dtype)), 1 / parts)

    def append(self, b: IRBuilder, scores: Value, labels: Value | None, divisor: Value | None) -> Value:
        """The loss of one micro-batch."""
        if labels is None:
            return widen(b, b.op("reshape", [scores], shape=()) if scores.type.rank else scores)
        if self.name == "softmax-cross-entropy":
            if self.labels == "probabilities":
                return cross_entropy_of_probabilities(b, scores, labels)
            return softmax_cross_entropy(b, scores, labels, ignore_index=self.ignore_index, divisor=divisor)
        if self.name == "mse":
            return mean_squared_error(b, scores, labels)
        return binary_cross_entropy(b, scores, labels, from_logits=self.name == "bce-with-logits")


def softmax_cross_entropy(
    b: IRBuilder,
    logits: Value,
    labels: Value,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    divisor: Value | None = None,
) -> Value:
    """Cross entropy of softmax(logits) with integer labels; `logits` [N, C, ...], `labels` [N, ...] of i32 or i64.

    Samples whose label is `ignore_index` do not count, in the mean neither: that of none is 0, and so are its gradients. A
    label that names no class makes the loss nan. `divisor`: what the sum is divided by for the mean, if not the number of
    those that count.
    """
    attrs = {"ignore_index": ignore_index, "label_smoothing": float(label_smoothing)}
    logits = unwidened(logits)
    rows = with_classes_last(b, logits)
    if rows is None:
        losses = b.multi("softmax_cross_entropy", [logits, labels], **attrs).results[0]
    else:
        flat = b.op("reshape", [labels], shape=(labels.type.elements,))
        losses = b.multi("softmax_cross_entropy", [rows, flat], **attrs).results[0]
        losses = b.op("reshape", [losses], shape=labels.type.shape)
    total = _sum(b, losses)
    if reduction == "sum":
        return total
    return b.op("div", [total, divisor or _count(b, labels, ignore_index, total.type.dtype)])


def unwidened(logits: Value) -> Value:
    """What logits were before they were made f32: the loss widens halves itself, in registers."""
    op = logits.op
    widens = op is not None and op.name == "cast" and logits.type.dtype is DType.F32
    if op is not None and widens and op.operands[0].type.dtype in HALF:
        return op.operands[0]
    return logits


def with_classes_last(b: IRBuilder, logits: Value) -> Value | None:
    """Logits [N, C, ...] that a model made as [N, ..., C] and transposed, as a row of classes for each sample, [N ..., C]:
    neither they nor their gradient are transposed then. None for others."""
    op, rank = logits.op, logits.type.rank
    if op is None or op.name != "transpose" or op.attrs["perm"] != (0, rank - 1, *range(1, rank - 1)):
        return None
    source = op.operands[0]
    classes = source.type.shape[-1]
    return b.op("reshape", [source], shape=(source.type.elements // classes, classes)) if classes else None


def _count(b: IRBuilder, labels: Value, ignore_index: int, to: DType) -> Value:
    """How many labels count, at least 1."""
    limits = np.iinfo(labels.type.dtype.numpy)
    if not int(limits.min) <= ignore_index <= int(limits.max):
        return b.scalar(max(labels.type.elements, 1), to)
    counted = b.op("not_equal", [labels, b.scalar(ignore_index, labels.type.dtype)])
    return b.op("max", [_sum(b, cast(b, counted, to)), b.scalar(1, to)])


def cross_entropy_of_probabilities(b: IRBuilder, logits: Value, target: Value) -> Value:
    """Mean over the samples of -sum(target log(softmax(logits))) along axis 1; both [N, C, ...]."""
    _same_type(logits, target)
    logarithms = b.op("log_softmax", [widen(b, logits)], axis=1)
    total = _sum(b, b.op("mul", [widen(b, target), logarithms]))
    return scaled(b, total, -1 / max(logits.type.elements // logits.type.shape[1], 1))


def mean_squared_error(b: IRBuilder, x: Value, target: Value, reduction: Reduction = "mean") -> Value:
    """(x - target) squared. Raises UnsupportedError unless the two have one type."""
    _same_type(x, target)
    return _reduced(b, square(b, b.op("sub", [widen(b, x), widen(b, target)])), reduction)


def binary_cross_entropy(
    b: IRBuilder, x: Value, target: Value, from_logits: bool, reduction: Reduction = "mean"
) -> Value:
    """-(t log(p) + (1 - t) log(1 - p)) of targets t in [0, 1], where p is `x`, or sigmoid(x) if `from_logits`.

    Both are finite, and so are their gradients (`ir/ops/binary_cross_entropy.py`). Raises UnsupportedError unless the two
    have one type.
    """
    _same_type(x, target)
    name = "binary_cross_entropy_with_logits" if from_logits else "binary_cross_entropy"
    return _reduced(b, b.op(name, [x, target]), reduction)


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

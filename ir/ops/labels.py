# SPDX-License-Identifier: Apache-2.0
"""What losses of integer labels share: which labels count, which name a class, and which do neither.

A label that is `ignore_index` has no loss and no gradient. Any other must name a class: the loss of one that does not is
nan, and so are the gradients in that sample's scores, evaluated and compiled alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import count, index_operand, int_attr
from .shared.derivatives import again, keep_where
from .shared.op_def import Attrs

LABEL_LOSSES = ("softmax_cross_entropy", "negative_log_likelihood")
"""Ops whose operand 1 are labels of operand 0, whose axis 1 are the classes."""


def infer_labels(operands: Sequence[TensorType], attrs: Attrs) -> None:
    """Raise OpError unless the operands are scores [N, C, ...] and labels [N, ...]."""
    count(operands, 2)
    scores, labels = operands
    index_operand(labels)
    if scores.rank < 2 or not scores.dtype.is_float or scores.shape[1] == 0:
        raise OpError(f"expected logits [N, C, ...] of floats for at least one class, got {scores}")
    if labels.shape != (scores.shape[0], *scores.shape[2:]):
        raise OpError(f"expected labels {[scores.shape[0], *scores.shape[2:]]} for logits {scores}, got {labels}")
    if "ignore_index" in attrs:
        int_attr(attrs, "ignore_index")


def ignored_label(attrs: Attrs, dtype: DType) -> int | None:
    """The label that does not count; None if every label of type `dtype` does."""
    if "ignore_index" not in attrs:
        return None
    found = int_attr(attrs, "ignore_index")
    limits = np.iinfo(dtype.numpy)
    return found if int(limits.min) <= found <= int(limits.max) else None


def counted_array(labels: Array, attrs: Attrs) -> Array:
    """Which labels count, in numpy."""
    found = ignored_label(attrs, DType.from_numpy(labels.dtype))
    return np.ones(labels.shape, bool) if found is None else np.asarray(labels != found)


def counted(b: IRBuilder, op: Op) -> Value | None:
    """Which labels of a loss count; None if all do."""
    labels = op.operands[1]
    found = ignored_label(op.attrs, labels.type.dtype)
    return None if found is None else b.op("not_equal", [labels, b.scalar(found, labels.type.dtype)])


def named(b: IRBuilder, op: Op, time: int = 0) -> Value:
    """Which labels of a loss name a class, recomputed for each `time` but 0: it is not kept for the gradient."""
    scores, labels = op.operands
    dtype = labels.type.dtype

    def write(name: str, operands: Sequence[Value]) -> Value:
        return again(b, name, operands, time) if time else b.op(name, operands)

    lowest = write("greater_equal", [labels, b.scalar(0, dtype)])
    return write("logical_and", [lowest, write("less", [labels, b.scalar(scores.type.shape[1], dtype)])])


def wrong(b: IRBuilder, op: Op) -> Value:
    """Which labels of a loss count and name no class."""
    bad = b.op("logical_not", [named(b, op)])
    counts = counted(b, op)
    return bad if counts is None else b.op("logical_and", [bad, counts])


def kept(b: IRBuilder, op: Op, x: Value, time: int = 0) -> Value:
    """A number of each sample where its label names a class, 0 where it does not count, and nan otherwise."""
    found = b.op("select", [named(b, op, time), x, b.scalar(np.nan, x.type.dtype)])
    counts = counted(b, op)
    return found if counts is None else keep_where(b, counts, found)


def row(value: Value) -> tuple[int, ...]:
    """The shape of one number per sample, with an axis for the classes."""
    n, *rest = value.type.shape
    return (n, 1, *rest)


def picked(b: IRBuilder, op: Op) -> Value:
    """Each sample's score of its label, in the scores' type; any score where the label names no class."""
    scores, labels = op.operands
    counts = counted(b, op)
    safe = labels if counts is None else keep_where(b, counts, labels)
    positions = b.op("reshape", [safe], shape=row(labels))
    return b.op("reshape", [b.op("gather_elements", [scores, positions], axis=1)], shape=labels.type.shape)


def picked_array(scores: Array, labels: Array) -> tuple[Array, Array]:
    """The same in numpy, and which labels name a class."""
    good = (labels >= 0) & (labels < scores.shape[1])
    safe = np.where(good, labels, 0)
    return np.take_along_axis(scores, safe[:, None], axis=1)[:, 0], good


def hits(b: IRBuilder, op: Op) -> tuple[Value, Value]:
    """Each label with an axis for the classes, and the numbers of the classes along that axis: equal where it is hit."""
    scores, labels = op.operands
    lead = (1, scores.type.shape[1], *[1] * (scores.type.rank - 2))
    numbers = b.op("iota", [], shape=lead, axis=1, dtype=labels.type.dtype)
    return b.op("reshape", [labels], shape=row(labels)), numbers

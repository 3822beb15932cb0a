# SPDX-License-Identifier: Apache-2.0
"""Losses as ops: scalars, means over a batch."""

from __future__ import annotations

from memc.ir.build import IRBuilder
from memc.ir.core import Value


def softmax_cross_entropy(b: IRBuilder, logits: Value, labels: Value) -> Value:
    """Mean of -log softmax(logits) at the labels. `logits` [N, C, ...] of floats, `labels` [N, ...] of i64 in [0, C)."""
    logs = b.op("log_softmax", [logits], axis=1)
    at = b.op("reshape", [labels], shape=(labels.type.shape[0], 1, *labels.type.shape[1:]))
    return b.op("neg", [_mean(b, b.op("gather_elements", [logs, at], axis=1))])


def mean_squared_error(b: IRBuilder, x: Value, target: Value) -> Value:
    """Mean of (x - target)^2 over all elements."""
    distance = b.op("sub", [x, target])
    return _mean(b, b.op("mul", [distance, distance]))


def binary_cross_entropy(b: IRBuilder, x: Value, target: Value, from_logits: bool) -> Value:
    """Mean of -(t log p + (1 - t) log(1 - p)), where p is x, or sigmoid(x) for logits.

    Logarithms of probabilities are at least -100, as in PyTorch.
    """
    one = b.scalar(1, x.type.dtype)
    if from_logits:
        return _mean(b, b.op("sub", [b.op("softplus", [x]), b.op("mul", [x, target])]))
    least = b.scalar(-100, x.type.dtype)
    logs = [b.op("max", [b.op("log", [p]), least]) for p in (x, b.op("sub", [one, x]))]
    terms = [b.op("mul", [share, log]) for share, log in zip((target, b.op("sub", [one, target])), logs)]
    return b.op("neg", [_mean(b, b.op("add", terms))])


def _mean(b: IRBuilder, value: Value) -> Value:
    return b.op("reduce_mean", [value], axes=tuple(range(value.type.rank)), keepdims=False)

# SPDX-License-Identifier: Apache-2.0
"""negative_log_likelihood: minus the score, a logarithm of a probability, of each sample's label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..types import TensorType
from .labels import counted_array, hits, infer_labels, kept, picked, picked_array, row, wrong
from .shared.derivatives import again
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    infer_labels(operands, attrs)
    return [TensorType(operands[0].dtype, operands[1].shape)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    scores, labels = inputs
    chosen, good = picked_array(scores, labels)
    loss = np.where(counted_array(labels, attrs), np.where(good, -chosen, np.nan), 0)
    return [loss.astype(results[0].dtype.numpy)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    return [kept(b, op, b.op("neg", [picked(b, op)]))]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads the labels."""
    (g,) = grads
    if g is None:
        return [None, None]
    scores, labels = op.operands
    dtype, shape = scores.type.dtype, row(labels)
    weight = b.op("reshape", [b.op("neg", [kept(b, op, g, 1)])], shape=shape)
    found = b.op("select", [again(b, "equal", hits(b, op), 1), weight, b.scalar(0, dtype)])
    bad = b.op("reshape", [wrong(b, op)], shape=shape)
    return [b.op("select", [bad, b.scalar(np.nan, dtype), found]), None]


register(
    OpDef(
        name="negative_log_likelihood",
        doc="-scores[label] for every sample.\n\n"
        "Operands scores [N, C, ...] and labels [N, ...] (i32 or i64, each in [0, C); the loss of others is nan, and so are\n"
        "the gradients in that sample's scores). Attribute `ignore_index`, which may be absent: a label whose loss is 0.\n"
        "The result has the labels' shape and the scores' element type.",
        spec="https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: op.result.type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.CHEAP}),
    )
)

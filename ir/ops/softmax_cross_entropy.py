# SPDX-License-Identifier: Apache-2.0
"""softmax_cross_entropy: minus the logarithm of the probability that softmax gives to a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .labels import counted_array, hits, infer_labels, kept, picked, picked_array, row
from .shared.casts import cast, widen
from .shared.common import float_attr
from .shared.derivatives import again, scaled, widen_again
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register
from .shared.window import accumulator


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    infer_labels(operands, attrs)
    logits, labels = operands
    if not 0 <= float_attr(attrs, "label_smoothing") <= 1:
        raise OpError(f"expected attribute `label_smoothing` from 0 to 1, got {attrs['label_smoothing']}")
    result = TensorType(accumulator(logits.dtype), labels.shape)
    return [result, result]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    logits, labels = inputs
    wide = results[0].dtype.numpy
    x = logits.astype(wide, copy=False)
    smoothing = float_attr(attrs, "label_smoothing")
    chosen, good = picked_array(x, labels)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        greatest = x.max(axis=1)
        total = greatest + np.log(np.exp(x - greatest[:, None]).sum(axis=1))
        aim = (1 - smoothing) * chosen + smoothing * x.mean(axis=1) if smoothing else chosen
        loss = np.where(counted_array(labels, attrs), np.where(good, total - aim, np.nan), 0)
    return [loss.astype(wide), total.astype(wide)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    logits, labels = op.operands
    smoothing = float_attr(op.attrs, "label_smoothing")
    classes = logits.type.shape[1]
    greatest = b.op("reduce_max", [widen_again(b, logits, 1)], axes=(1,), keepdims=True)
    powers = b.op("exp", [b.op("sub", [widen_again(b, logits, 2), greatest])])
    total = b.op("log", [b.op("reduce_sum", [powers], axes=(1,), keepdims=False)])
    total = b.op("add", [total, b.op("reshape", [greatest], shape=labels.type.shape)])
    aim = widen(b, picked(b, op))
    if smoothing:
        everywhere = b.op("reduce_sum", [widen_again(b, logits, 3)], axes=(1,), keepdims=False)
        aim = b.op("add", [scaled(b, aim, 1 - smoothing), scaled(b, everywhere, smoothing / classes)])
    return [kept(b, op, b.op("sub", [total, aim])), total]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """(softmax(logits) - labels) g, with the labels as one of each row only while it is computed.

    Reads the logits, the labels and the second result, a number per sample.
    """
    logits, labels = op.operands
    total = op.results[1]
    g, g_total = grads
    dtype, shape = total.type.dtype, row(labels)
    smoothing = float_attr(op.attrs, "label_smoothing")
    if g is not None:
        g = kept(b, op, g, 1)
    arriving = [v for v in (g, g_total) if v is not None]
    weight = arriving[0] if len(arriving) == 1 else b.op("add", arriving)

    def column(value: Value) -> Value:
        return b.op("reshape", [value], shape=shape)

    power = b.op("exp", [b.op("sub", [widen_again(b, logits, 4), column(total)])])
    found = b.op("mul", [power, column(weight)])
    if g is not None:
        hit = again(b, "equal", hits(b, op), 1)
        zero = b.scalar(0, dtype)
        aim = b.op("select", [hit, column(scaled(b, g, 1 - smoothing) if smoothing else g), zero])
        if smoothing:
            aim = b.op("add", [aim, column(scaled(b, g, smoothing / logits.type.shape[1]))])
        found = b.op("sub", [found, aim])
    return [cast(b, found, logits.type.dtype), None]


register(
    OpDef(
        name="softmax_cross_entropy",
        doc="-log(softmax(logits)[label]) for every sample, and log(sum(exp(logits))), from which the gradient is made.\n\n"
        "Operands logits [N, C, ...] and labels [N, ...] (i32 or i64, each in [0, C); the loss of others is nan, and so is\n"
        "its gradient). Attributes `ignore_index`, which may be absent: a label whose loss is 0; `label_smoothing`: the\n"
        "part of the target, from 0 to 1, that is spread over all classes evenly.\n"
        "Both results have the labels' shape, and are f32 for half precision.",
        spec="https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: 4 * op.operands[0].type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

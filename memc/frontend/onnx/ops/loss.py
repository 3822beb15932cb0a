# SPDX-License-Identifier: Apache-2.0
"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, without the transposes of the standard's function bodies."""

from __future__ import annotations

from collections.abc import Sequence

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Value
from memc.ir.ops.casts import cast, widen
from memc.ir.ops.reduce import mean, reduce


def negative_log_likelihood(ctx: NodeContext, scores: Value) -> Value:
    """-weight[t] * scores[n, t, ...] for each target t (input 1; weights are input 2), reduced as the node says.

    `scores` is [n, c, ...]. Targets equal to ignore_index count neither in the sum nor in the mean's divisor, and may
    be out of range.
    """
    b, target, shape = ctx.b, ctx.value(1), scores.type.shape
    reduction, ignored = ctx.attr("reduction", "mean"), ctx.attr("ignore_index")
    if len(shape) < 2 or target.type.shape != (shape[0], *shape[2:]):
        raise ctx.unsupported(f"expected targets of shape {[shape[0], *shape[2:]]}, got {target.type}")
    if reduction not in ("none", "sum", "mean"):
        raise ctx.unsupported(f"expected reduction none, sum or mean, got {reduction}")
    if ctx.has(2) and ctx.type(2).shape != (shape[1],):
        raise ctx.unsupported(f"expected weights of shape [{shape[1]}], got {ctx.type(2)}")
    zero = b.scalar(0, scores.type.dtype)
    skip = None
    if ignored is not None:
        skip = b.op("equal", [target, b.scalar(int(ignored), target.type.dtype)])
        target = b.op("select", [skip, b.scalar(0, target.type.dtype), target])
    positions = b.op("reshape", [target], shape=(shape[0], 1, *shape[2:]))
    picked = b.op("gather_elements", [scores, positions], axis=1)
    loss = b.op("neg", [b.op("reshape", [picked], shape=target.type.shape)])
    weight = None
    if ctx.has(2):
        weight = b.op("gather", [cast(b, ctx.value(2), scores.type.dtype), target], axis=0)
        loss = b.op("mul", [loss, weight])
    if skip is not None:
        # Selected, not multiplied: an ignored infinite loss must not become nan.
        loss = b.op("select", [skip, zero, loss])
        weight = b.op("select", [skip, zero, weight or b.scalar(1, scores.type.dtype)])
    axes = range(target.type.rank)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return reduce(b, "sum", loss, axes, keepdims=False)
    if weight is None:
        return mean(b, loss, axes, keepdims=False)
    total, count = (reduce(b, "sum", widen(b, v), axes, keepdims=False) for v in (loss, weight))
    return cast(b, b.op("div", [total, count]), scores.type.dtype)


@imports("NegativeLogLikelihoodLoss")
def nll_loss(ctx: NodeContext) -> Sequence[Known]:
    return [negative_log_likelihood(ctx, ctx.value(0))]


@imports("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(ctx: NodeContext) -> Sequence[Known]:
    if ctx.type(0).rank < 2:
        raise ctx.unsupported(f"expected scores of rank 2 or more, got {ctx.type(0)}")
    scores = ctx.b.op("log_softmax", [ctx.value(0)], axis=1)
    return [negative_log_likelihood(ctx, scores), scores]

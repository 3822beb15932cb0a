# SPDX-License-Identifier: Apache-2.0
"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, without the transposes of the standard's function bodies.

The standard wants targets from 0 to C - 1, or `ignore_index`: any other, negative ones too, makes the loss nan.
"""

from __future__ import annotations

from collections.abc import Sequence

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Attr, Op, Value
from memc.ir.ops.labels import counted, named
from memc.ir.ops.reduce import mean, reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.ops.shared.derivatives import keep_where
from memc.ir.types import DType


def _check(ctx: NodeContext) -> None:
    shape, target = ctx.type(0).shape, ctx.type(1)
    if len(shape) < 2:
        raise ctx.unsupported(f"expected scores of rank 2 or more, got {ctx.type(0)}")
    if target.shape != (shape[0], *shape[2:]):
        raise ctx.unsupported(f"expected targets of shape {[shape[0], *shape[2:]]}, got {target}")
    reduction = ctx.attr("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        raise ctx.unsupported(f"expected reduction none, sum or mean, got {reduction}")
    if ctx.has(2) and ctx.type(2).shape != (shape[1],):
        raise ctx.unsupported(f"expected weights of shape [{shape[1]}], got {ctx.type(2)}")


def _losses(ctx: NodeContext, name: str, scores: Value, **attrs: Attr) -> Op:
    """The op that gives each sample's loss without weights; targets are input 1."""
    ignored = ctx.attr("ignore_index")
    if ignored is not None:
        attrs["ignore_index"] = int(ignored)
    return ctx.b.multi(name, [scores, ctx.value(1)], **attrs)


def _reduced(ctx: NodeContext, op: Op, dtype: DType) -> Value:
    """The losses, result 0 of `op`, weighted by input 2 and reduced as the node says."""
    b, loss, target = ctx.b, op.results[0], op.operands[1]
    counts = counted(b, op)
    weight = None
    if ctx.has(2):
        known = keep_where(b, named(b, op), target)
        weight = b.op("gather", [cast(b, ctx.value(2), loss.type.dtype), known], axis=0)
        loss = b.op("mul", [loss, weight])
        if counts is not None:
            # Selected: what does not count is 0 whatever the weight.
            loss = keep_where(b, counts, loss)
    if counts is not None:
        weight = keep_where(b, counts, weight or b.scalar(1, loss.type.dtype))
    reduction, axes = ctx.attr("reduction", "mean"), range(target.type.rank)
    if reduction == "none":
        return cast(b, loss, dtype)
    if reduction == "sum":
        return cast(b, reduce(b, "sum", loss, axes, keepdims=False), dtype)
    if weight is None:
        return cast(b, mean(b, loss, axes, keepdims=False), dtype)
    total, count = (reduce(b, "sum", widen(b, v), axes, keepdims=False) for v in (loss, weight))
    if ctx.trainable:
        # The standard's mean of nothing is nan, whose gradient is 0: what is trained has a loss of 0 then.
        none = b.op("equal", [count, b.scalar(0, count.type.dtype)])
        count = b.op("select", [none, b.scalar(1, count.type.dtype), count])
    return cast(b, b.op("div", [total, count]), dtype)


@imports("NegativeLogLikelihoodLoss")
def nll_loss(ctx: NodeContext) -> Sequence[Known]:
    _check(ctx)
    scores = ctx.value(0)
    return [_reduced(ctx, _losses(ctx, "negative_log_likelihood", scores), scores.type.dtype)]


@imports("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(ctx: NodeContext) -> Sequence[Known]:
    _check(ctx)
    logits = ctx.value(0)
    dtype = logits.type.dtype
    if len(ctx.node.output) < 2 or not ctx.node.output[1]:
        return [_reduced(ctx, _losses(ctx, "softmax_cross_entropy", logits, label_smoothing=0.0), dtype)]
    scores = ctx.b.op("log_softmax", [logits], axis=1)
    return [_reduced(ctx, _losses(ctx, "negative_log_likelihood", scores), dtype), scores]

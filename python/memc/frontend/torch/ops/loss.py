# SPDX-License-Identifier: Apache-2.0
"""Losses as ops, so that a training step checks labels and keeps no probabilities."""

from __future__ import annotations

import math

from memc.ir.core import Attr, Op, Value
from memc.ir.ops.labels import counted, named
from memc.ir.ops.reduce import mean, reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.ops.shared.derivatives import keep_where
from memc.ir.types import DType

from ..context import NodeContext, converts
from .elementwise import number, square
from .views import reshaped

NONE, MEAN, SUM = 0, 1, 2
"""PyTorch's numbers of reductions."""


def reduced(ctx: NodeContext, loss: Value, dtype: DType, default: int = MEAN) -> Value:
    """Losses of elements, as the node says."""
    how, axes = int(ctx.get("reduction", default)), range(loss.type.rank)
    if how == NONE:
        return cast(ctx.b, loss, dtype)
    found = reduce(ctx.b, "sum", loss, axes, False) if how == SUM else mean(ctx.b, loss, axes, False)
    return cast(ctx.b, found, dtype)


def _label_loss(ctx: NodeContext, name: str, scores: Value, target: Value) -> Value:
    """The loss of classes, weighted and reduced as the node says."""
    attrs: dict[str, Attr] = {"ignore_index": int(ctx.get("ignore_index", -100))}
    smoothing = float(ctx.get("label_smoothing", 0.0))
    apart = smoothing != 0 and ctx.has("weight")  # The op smooths over all classes alike.
    if name == "softmax_cross_entropy":
        attrs["label_smoothing"] = 0.0 if apart else smoothing
    dtype, single = scores.type.dtype, scores.type.rank == 1
    if single:
        scores, target = (reshaped(ctx.b, v, (1, *v.type.shape)) for v in (scores, target))
    if scores.type.dtype.is_float and target.type.dtype.is_integer and target.type.dtype not in (DType.I32, DType.I64):
        target = cast(ctx.b, target, DType.I64)
    op = ctx.b.multi(name, [scores, target], **attrs)
    found = _weighted(ctx, op, dtype, smoothing if apart else 0.0)
    return reshaped(ctx.b, found, ()) if single else found


def _weighted(ctx: NodeContext, op: Op, dtype: DType, smoothing: float) -> Value:
    b, loss, target = ctx.b, op.results[0], op.operands[1]
    counts = counted(b, op)
    weight: Value | None = None
    if ctx.has("weight"):
        known = keep_where(b, named(b, op), target)
        weight = b.op("gather", [cast(b, ctx.value("weight"), loss.type.dtype), known], axis=0)
        loss = b.op("mul", [loss, weight])
        loss = _smoothed(ctx, op.operands[0], loss, smoothing) if smoothing else loss
        loss = loss if counts is None else keep_where(b, counts, loss)
    if counts is not None:
        weight = keep_where(b, counts, weight or b.scalar(1, loss.type.dtype))
    how, axes = int(ctx.get("reduction", MEAN)), range(target.type.rank)
    if how != MEAN or weight is None:
        return reduced(ctx, loss, dtype)
    total, count = (reduce(b, "sum", widen(b, v), axes, False) for v in (loss, weight))
    if ctx.trainable:
        # The mean of nothing is nan, whose gradient is 0: what is trained has a loss of 0 then.
        none = b.op("equal", [count, number(ctx, 0, count)])
        count = b.op("select", [none, number(ctx, 1, count), count])
    return cast(b, b.op("div", [total, count]), dtype)


def _smoothed(ctx: NodeContext, scores: Value, loss: Value, smoothing: float) -> Value:
    """(1 - smoothing) of the label's weighted loss, and the rest shared by all classes, each with its weight."""
    b, classes = ctx.b, scores.type.shape[1]
    column = reshaped(b, cast(b, ctx.value("weight"), loss.type.dtype), (classes, *[1] * (scores.type.rank - 2)))
    logs = b.op("log_softmax", [widen(b, scores)], axis=1)
    rest = reduce(b, "sum", b.op("mul", [cast(b, logs, loss.type.dtype), column]), (1,), False)
    shares = (number(ctx, 1 - smoothing, loss), number(ctx, -smoothing / classes, loss))
    return b.op("add", [b.op("mul", [loss, shares[0]]), b.op("mul", [rest, shares[1]])])


@converts("aten.cross_entropy_loss.default")
def cross_entropy_loss(ctx: NodeContext) -> Value:
    scores, target = ctx.value("self"), ctx.value("target")
    if not target.type.dtype.is_float:
        return _label_loss(ctx, "softmax_cross_entropy", scores, target)
    return _soft_labels(ctx, scores, target)


def _soft_labels(ctx: NodeContext, scores: Value, target: Value) -> Value:
    """Cross entropy with probabilities for each class."""
    b, axis = ctx.b, 1 if scores.type.rank > 1 else 0
    smoothing = float(ctx.get("label_smoothing", 0.0))
    if smoothing:
        kept = b.op("mul", [target, number(ctx, 1 - smoothing, target)])
        target = b.op("add", [kept, number(ctx, smoothing / scores.type.shape[axis], target)])
    terms = b.op("mul", [b.op("log_softmax", [widen(b, scores)], axis=axis), widen(b, target)])
    if ctx.has("weight"):
        column = (-1, *[1] * (scores.type.rank - 2)) if scores.type.rank > 1 else (-1,)
        shape = tuple(scores.type.shape[axis] if n == -1 else n for n in column)
        terms = b.op("mul", [terms, reshaped(b, ctx.value("weight"), shape)])
    loss = b.op("neg", [b.op("reduce_sum", [terms], axes=(axis,), keepdims=False)])
    return reduced(ctx, loss, scores.type.dtype)


@converts("aten.nll_loss_nd.default", "aten.nll_loss.default", "aten.nll_loss2d.default")
def nll_loss(ctx: NodeContext) -> Value:
    return _label_loss(ctx, "negative_log_likelihood", ctx.value("self"), ctx.value("target"))


@converts("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss_forward(ctx: NodeContext) -> list[Value]:
    return [nll_loss(ctx), ctx.b.scalar(0, ctx.value("self").type.dtype)]


def _distance(ctx: NodeContext) -> Value:
    b = ctx.b
    x, y = ctx.value("self"), ctx.value("target")
    if {x.type.dtype, y.type.dtype} != {x.type.dtype}:
        y = cast(b, y, x.type.dtype)
    return b.op("sub", [widen(b, x), widen(b, y)])


@converts("aten.mse_loss.default")
def mse_loss(ctx: NodeContext) -> Value:
    return reduced(ctx, square(ctx, _distance(ctx)), ctx.value("self").type.dtype)


@converts("aten.l1_loss.default")
def l1_loss(ctx: NodeContext) -> Value:
    return reduced(ctx, ctx.b.op("abs", [_distance(ctx)]), ctx.value("self").type.dtype)


@converts("aten.smooth_l1_loss.default", "aten.huber_loss.default")
def smooth_l1_loss(ctx: NodeContext) -> Value:
    """A parabola near 0, lines beyond; Huber's is `delta` times the other's."""
    b, huber = ctx.b, "huber" in ctx.node.target
    beta = float(ctx.get("delta" if huber else "beta", 1.0))
    distance = _distance(ctx)
    size = b.op("abs", [distance])
    if beta == 0:
        return reduced(ctx, size, ctx.value("self").type.dtype)
    curve = b.op("mul", [square(ctx, distance), number(ctx, 0.5 if huber else 0.5 / beta, size)])
    line = b.op("sub", [size, number(ctx, beta / 2, size)])
    line = b.op("mul", [line, number(ctx, beta, size)]) if huber else line
    near = b.op("less", [size, number(ctx, beta, size)])
    return reduced(ctx, b.op("select", [near, curve, line]), ctx.value("self").type.dtype)


@converts("aten.binary_cross_entropy.default", "aten.binary_cross_entropy_with_logits.default")
def binary_cross_entropy(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("self")
    logits = "logits" in ctx.node.target
    target = cast(b, ctx.value("target"), x.type.dtype)
    if ctx.has("pos_weight"):
        loss = _weighted_logits(ctx, x, target)
    else:
        loss = b.op("binary_cross_entropy" + ("_with_logits" if logits else ""), [x, target])
    if ctx.has("weight"):
        loss = b.op("mul", [loss, cast(b, ctx.value("weight"), loss.type.dtype)])
    return reduced(ctx, loss, x.type.dtype)


def _weighted_logits(ctx: NodeContext, z: Value, target: Value) -> Value:
    """p t softplus(-z) + (1 - t) softplus(z)."""
    b, positive = ctx.b, ctx.value("pos_weight")
    first = b.op("mul", [b.op("mul", [target, positive]), b.op("softplus", [b.op("neg", [z])])])
    rest = b.op("mul", [b.op("sub", [number(ctx, 1, target), target]), b.op("softplus", [z])])
    return b.op("add", [first, rest])


@converts("aten.kl_div.default")
def kl_div(ctx: NodeContext) -> Value:
    """target (log target - input), where a target of 0 counts nothing."""
    b, x, target = ctx.b, ctx.value("self"), ctx.value("target")
    if ctx.get("log_target", False):
        loss = b.op("mul", [b.op("exp", [target]), b.op("sub", [target, x])])
        return reduced(ctx, loss, x.type.dtype)
    some = b.op("greater", [target, number(ctx, 0, target)])
    safe = b.op("select", [some, target, number(ctx, 1, target)])
    entropy = b.op("mul", [target, b.op("log", [safe])])
    return reduced(ctx, b.op("sub", [entropy, b.op("mul", [target, x])]), x.type.dtype)


@converts("aten.poisson_nll_loss.default")
def poisson_nll_loss(ctx: NodeContext) -> Value:
    """rate - target log(rate), and with `full` Stirling's approximation of log(target!) where the target is above 1."""
    b, x = ctx.b, ctx.value("input")
    target = cast(b, ctx.value("target"), x.type.dtype)
    if ctx.get("log_input", True):
        rate, log = b.op("exp", [x]), x
    else:
        rate, log = x, b.op("log", [b.op("add", [x, number(ctx, float(ctx.get("eps", 1e-8)), x)])])
    loss = b.op("sub", [rate, b.op("mul", [target, log])])
    if ctx.get("full", False):
        some = b.op("greater", [target, number(ctx, 1, target)])
        safe = b.op("select", [some, target, number(ctx, 1, target)])
        terms = b.op("sub", [b.op("mul", [safe, b.op("log", [safe])]), safe])
        around = b.op("log", [b.op("mul", [safe, number(ctx, 2 * math.pi, safe)])])
        stirling = b.op("add", [terms, b.op("mul", [around, number(ctx, 0.5, safe)])])
        loss = b.op("add", [loss, keep_where(b, some, stirling)])
    return reduced(ctx, loss, x.type.dtype)

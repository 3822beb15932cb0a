# SPDX-License-Identifier: Apache-2.0
"""Losses of margins and of distances between vectors, from elementwise ops and sums."""

from __future__ import annotations

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce
from memc.ir.ops.shared.casts import cast, widen
from memc.ir.ops.shared.derivatives import keep_where

from ..context import NodeContext, converts
from .elementwise import number, square
from .loss import reduced
from .reduction import norm_of
from .views import reshaped

SQUARES_EPSILON = 1e-12
"""What PyTorch adds to sums of squares before it divides by their root."""


def _hinge(ctx: NodeContext, x: Value) -> Value:
    """max(x, 0)."""
    return ctx.b.op("max", [x, number(ctx, 0, x)])


def _plus(ctx: NodeContext, x: Value, addend: float) -> Value:
    return ctx.b.op("add", [x, number(ctx, addend, x)])


def _where_equal(ctx: NodeContext, target: Value, to: float, x: Value) -> Value:
    """x where the target is a number, else 0."""
    return keep_where(ctx.b, ctx.b.op("equal", [target, number(ctx, to, target)]), x)


def _where_unequal(ctx: NodeContext, target: Value, to: float, x: Value) -> Value:
    return keep_where(ctx.b, ctx.b.op("not_equal", [target, number(ctx, to, target)]), x)


@converts("aten.soft_margin_loss.default")
def soft_margin_loss(ctx: NodeContext) -> Value:
    """log(1 + exp(-target x))."""
    b, x = ctx.b, ctx.value("self")
    product = b.op("mul", [widen(b, x), cast(b, ctx.value("target"), widen(b, x).type.dtype)])
    return reduced(ctx, b.op("softplus", [b.op("neg", [product])]), x.type.dtype)


@converts("aten.hinge_embedding_loss.default")
def hinge_embedding_loss(ctx: NodeContext) -> Value:
    """x where the target is 1, max(0, margin - x) where it is -1, and both elsewhere."""
    b, x, target = ctx.b, ctx.value("self"), ctx.value("target")
    apart = _hinge(ctx, _plus(ctx, b.op("neg", [x]), float(ctx.get("margin", 1.0))))
    loss = b.op("add", [_where_unequal(ctx, target, 1, apart), _where_unequal(ctx, target, -1, x)])
    return reduced(ctx, loss, x.type.dtype)


@converts("aten.margin_ranking_loss.default")
def margin_ranking_loss(ctx: NodeContext) -> Value:
    """max(0, margin - target (x - y))."""
    b, x, y = ctx.b, ctx.value("input1"), ctx.value("input2")
    target = cast(b, ctx.value("target"), x.type.dtype)
    product = b.op("mul", [b.op("neg", [target]), b.op("sub", [x, y])])
    return reduced(ctx, _hinge(ctx, _plus(ctx, product, float(ctx.get("margin", 0.0)))), x.type.dtype)


@converts("aten.cosine_embedding_loss.default")
def cosine_embedding_loss(ctx: NodeContext) -> Value:
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""
    b, target, dtype = ctx.b, ctx.value("target"), ctx.value("input1").type.dtype
    x, y = (widen(b, ctx.value(name)) for name in ("input1", "input2"))
    axes = (x.type.rank - 1,)
    products = reduce(b, "sum", b.op("mul", [x, y]), axes, False)
    squares = [_plus(ctx, reduce(b, "sum", square(ctx, v), axes, False), SQUARES_EPSILON) for v in (x, y)]
    cosine = b.op("div", [products, b.op("sqrt", [b.op("mul", squares)])])
    like = _where_equal(ctx, target, 1, b.op("sub", [number(ctx, 1, cosine), cosine]))
    unlike = _where_equal(ctx, target, -1, _hinge(ctx, _plus(ctx, cosine, -float(ctx.get("margin", 0.0)))))
    return reduced(ctx, b.op("add", [like, unlike]), dtype)


def _distance(ctx: NodeContext, x: Value, y: Value, keep: bool = False) -> Value:
    """The p-norm of x - y along the last axis; PyTorch adds eps to each difference, so that it has a gradient at 0."""
    difference = _plus(ctx, ctx.b.op("sub", [x, y]), float(ctx.get("eps", 1e-6)))
    return norm_of(ctx, difference, float(ctx.get("p", 2.0)), (difference.type.rank - 1,), keep)


@converts("aten.pairwise_distance.default")
def pairwise_distance(ctx: NodeContext) -> Value:
    return _distance(ctx, ctx.value("x1"), ctx.value("x2"), bool(ctx.get("keepdim", False)))


@converts("aten.triplet_margin_loss.default")
def triplet_margin_loss(ctx: NodeContext) -> Value:
    """max(0, margin + distance to the positive - distance to the negative), which may be the positive's (`swap`) if that is less."""
    b = ctx.b
    anchor, positive, negative = (ctx.value(name) for name in ("anchor", "positive", "negative"))
    near, far = _distance(ctx, anchor, positive), _distance(ctx, anchor, negative)
    if ctx.get("swap", False):
        far = b.op("min", [far, _distance(ctx, positive, negative)])
    loss = _hinge(ctx, _plus(ctx, b.op("sub", [near, far]), float(ctx.get("margin", 1.0))))
    return reduced(ctx, loss, anchor.type.dtype)


@converts("aten.multi_margin_loss.default")
def multi_margin_loss(ctx: NodeContext) -> Value:
    """The mean over the classes of max(0, margin - x[target] + x)^p, without the target's own, times the target's weight."""
    b, x, target = ctx.b, ctx.value("self"), ctx.value("target")
    single, dtype = x.type.rank < 2, x.type.dtype
    if single:
        x, target = reshaped(b, x, (1, x.type.elements)), reshaped(b, target, (1,))
    classes = x.type.shape[1]
    column = b.op("reshape", [target], shape=(*target.type.shape, 1))
    own = b.op("equal", [column, b.op("iota", [], shape=(1, classes), axis=1, dtype=target.type.dtype)])
    chosen = b.op("gather_elements", [x, column], axis=1)
    terms = _hinge(ctx, _plus(ctx, b.op("sub", [x, chosen]), float(ctx.get("margin", 1))))
    terms = terms if ctx.get("p", 1) == 1 else square(ctx, terms)
    terms = b.op("select", [own, number(ctx, 0, terms), terms])
    loss = b.op("div", [reduce(b, "sum", terms, (1,), False), number(ctx, classes, terms)])
    if ctx.has("weight"):
        loss = b.op("mul", [loss, b.op("gather", [cast(b, ctx.value("weight"), dtype), target], axis=0)])
    found = reduced(ctx, loss, dtype)
    return reshaped(b, found, ()) if single else found

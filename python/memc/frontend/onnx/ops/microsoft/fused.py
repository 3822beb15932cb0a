# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions with what follows them: FusedMatMul, FusedGemm, FusedConv."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memc.ir.build import IRBuilder
from memc.ir.core import Value

from ...context import Known, NodeContext
from ..conv_pool import conv
from ..matmul import gemm, numpy_product
from .domain import FLOAT, FLOATS, INT, INTS, TEXT, microsoft, require_float

Activation = Callable[[IRBuilder, Value, Sequence[float]], Value]
"""A function of a value and the parameters that its node gives."""


def _plain(name: str) -> Activation:
    return lambda b, x, params: b.op(name, [x])


def _celu(b: IRBuilder, x: Value, params: Sequence[float]) -> Value:
    scale = b.scalar(params[0], x.type.dtype)
    return b.op("mul", [b.op("elu", [b.op("div", [x, scale])], alpha=1.0), scale])


def _selu(b: IRBuilder, x: Value, params: Sequence[float]) -> Value:
    return b.op("mul", [b.op("elu", [x], alpha=params[0]), b.scalar(params[1], x.type.dtype)])


def _softsign(b: IRBuilder, x: Value, params: Sequence[float]) -> Value:
    return b.op("div", [x, b.op("add", [b.op("abs", [x]), b.scalar(1, x.type.dtype)])])


def _thresholded(b: IRBuilder, x: Value, params: Sequence[float]) -> Value:
    above = b.op("greater", [x, b.scalar(params[0], x.type.dtype)])
    return b.op("select", [above, x, b.scalar(0, x.type.dtype)])


_SHARED: Mapping[str, tuple[int, Activation]] = {
    "Relu": (0, _plain("relu")),
    "Sigmoid": (0, _plain("sigmoid")),
    "Tanh": (0, _plain("tanh")),
    "LeakyRelu": (1, lambda b, x, params: b.op("leaky_relu", [x], alpha=params[0])),
    "HardSigmoid": (2, lambda b, x, params: b.op("hard_sigmoid", [x], alpha=params[0], beta=params[1])),
}
"""Activations by name, each with how many parameters it takes."""

_OF_CONV: Mapping[str, tuple[int, Activation]] = {
    **_SHARED,
    "Clip": (2, lambda b, x, params: b.op("clip", [x], min=params[0], max=params[1])),
}

_OF_GEMM: Mapping[str, tuple[int, Activation]] = {
    **_SHARED,
    "Celu": (1, _celu),
    "Elu": (1, lambda b, x, params: b.op("elu", [x], alpha=params[0])),
    "Selu": (2, _selu),
    "Softplus": (0, _plain("softplus")),
    "Softsign": (0, _softsign),
    "ThresholdedRelu": (1, _thresholded),
}


def _activated(
    ctx: NodeContext, x: Value, known: Mapping[str, tuple[int, Activation]], params: Sequence[float], exact: bool
) -> Value:
    """`x` under the node's activation. `exact`: there must be no more parameters than the activation takes."""
    name = str(ctx.attr("activation", ""))
    if not name:
        return x
    if name not in known:
        raise ctx.unsupported(f"activation {name}")
    count, fn = known[name]
    if len(params) < count or (exact and len(params) != count):
        raise ctx.unsupported(f"expected {count} parameters of activation {name}, got {len(params)}")
    return fn(ctx.b, x, params)


def _last_axes(ctx: NodeContext, index: int, letter: str) -> Value:
    """Input `index` of a product with its axes where numpy.matmul has them."""
    x = ctx.value(index)
    rank = x.type.rank
    perm = list(range(rank))
    if ctx.attr(f"transBatch{letter}", 0) and rank > 2:
        perm = [*range(1, rank - 1), 0, rank - 1]
    if ctx.attr(f"trans{letter}", 0) and rank > 1:
        perm[-2:] = perm[:-3:-1]
    return x if perm == list(range(rank)) else ctx.b.op("transpose", [x], perm=tuple(perm))


@microsoft("FusedMatMul", inputs=(2, 2), alpha=FLOAT, transA=INT, transB=INT, transBatchA=INT, transBatchB=INT)
def fused_matmul(ctx: NodeContext) -> Sequence[Known]:
    """alpha times the product; a plain transpose becomes a flag of the product later on."""
    require_float(ctx, 0, 1)
    found = numpy_product(ctx, _last_axes(ctx, 0, "A"), _last_axes(ctx, 1, "B"))
    alpha = float(ctx.attr("alpha", 1.0))
    return [found if alpha == 1.0 else ctx.b.op("mul", [found, ctx.b.scalar(alpha, found.type.dtype)])]


microsoft("TransposeMatMul", inputs=(2, 2), alpha=FLOAT, transA=INT, transB=INT)(fused_matmul)


@microsoft(
    "FusedGemm",
    inputs=(2, 3),
    required=("activation",),
    alpha=FLOAT,
    beta=FLOAT,
    transA=INT,
    transB=INT,
    activation=TEXT,
    activation_alpha=FLOAT,
    activation_beta=FLOAT,
    activation_gamma=FLOAT,
)
def fused_gemm(ctx: NodeContext) -> Sequence[Known]:
    require_float(ctx, 0, 1, 2)
    (product,) = gemm(ctx)
    assert isinstance(product, Value)
    names = ("alpha", "gamma") if ctx.attr("activation") == "Selu" else ("alpha", "beta")
    given = [ctx.attr(f"activation_{name}") for name in names]
    params = [float(v) for v in (given if given[0] is not None else []) if v is not None]
    return [_activated(ctx, product, _OF_GEMM, params, exact=False)]


@microsoft(
    "FusedConv",
    inputs=(2, 4),
    auto_pad=TEXT,
    dilations=INTS,
    group=INT,
    kernel_shape=INTS,
    pads=INTS,
    strides=INTS,
    activation=TEXT,
    activation_params=FLOATS,
)
def fused_conv(ctx: NodeContext) -> Sequence[Known]:
    """activation(conv(x, w) + bias + z)."""
    require_float(ctx, *(i for i in range(4) if ctx.has(i)))
    (found,) = conv(ctx)
    assert isinstance(found, Value)
    if ctx.has(3):
        if ctx.type(3).shape != found.type.shape:
            raise ctx.unsupported(f"expected a Z of shape {list(found.type.shape)}, got {ctx.type(3)}")
        found = ctx.b.op("add", [found, ctx.value(3)])
    params = [float(v) for v in ctx.attr("activation_params", ())]
    return [_activated(ctx, found, _OF_CONV, params, exact=True)]

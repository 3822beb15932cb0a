# SPDX-License-Identifier: Apache-2.0
"""QLinearConv and NhwcMaxPool, in which onnxruntime has channels last for its own kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from memc.ir.core import Value

from ...context import Known, NodeContext
from ..conv_pool import max_pool
from ..quantized_nn import qlinear_conv
from .domain import INT, INTS, TEXT, microsoft
from .linear import require_small


def _channels_first(ctx: NodeContext, importer: Callable[[NodeContext], Sequence[Known]]) -> Sequence[Known]:
    """The standard's importer between two transposes."""
    rank = ctx.type(0).rank
    if rank < 3:
        raise ctx.unsupported(f"expected an input [n, spatial..., c], got {ctx.type(0)}")
    x = ctx.b.op("transpose", [ctx.value(0)], perm=(0, rank - 1, *range(1, rank - 1)))
    (found,) = importer(dataclasses.replace(ctx, inputs=[x, *ctx.inputs[1:]]))
    assert isinstance(found, Value)
    return [ctx.b.op("transpose", [found], perm=(0, *range(2, rank), 1))]


@microsoft(
    "QLinearConv",
    inputs=(8, 9),
    auto_pad=TEXT,
    channels_last=INT,
    dilations=INTS,
    group=INT,
    kernel_shape=INTS,
    pads=INTS,
    strides=INTS,
)
def qlinear_conv_of_onnxruntime(ctx: NodeContext) -> Sequence[Known]:
    return _channels_first(ctx, qlinear_conv) if ctx.attr("channels_last", 0) else qlinear_conv(ctx)


@microsoft(
    "NhwcMaxPool",
    inputs=(1, 1),
    required=("kernel_shape",),
    auto_pad=TEXT,
    ceil_mode=INT,
    dilations=INTS,
    kernel_shape=INTS,
    pads=INTS,
    strides=INTS,
)
def nhwc_max_pool(ctx: NodeContext) -> Sequence[Known]:
    require_small(ctx, 0)
    return _channels_first(ctx, max_pool)

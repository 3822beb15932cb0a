# SPDX-License-Identifier: Apache-2.0
"""The overload that nn.TransformerEncoderLayer calls in evaluation: attention and the two layers behind it in one."""

from __future__ import annotations

import math

from memc.ir.core import Value
from memc.ir.types import DType

from ..context import NodeContext, converts
from .attention import attention
from .matmul import product
from .views import cut, reshaped

SEEN, PADDING = 0, 1
"""PyTorch's numbers of masks: which keys a query sees, and which keys of a batch are padding."""


def _linear(ctx: NodeContext, x: Value, weight: str, bias: str) -> Value:
    found = product(ctx, x, ctx.value(weight), transpose_b=True)
    return ctx.b.op("add", [found, ctx.value(bias)])


def _norm(ctx: NodeContext, x: Value, which: int) -> Value:
    parameters = [ctx.value(f"norm_{part}_{which}") for part in ("weight", "bias")]
    return ctx.b.op("layer_norm", [x, *parameters], axis=x.type.rank - 1, epsilon=float(ctx.get("eps")))


def _mask(ctx: NodeContext, batch: int) -> Value | None:
    """What is added to the scores. Booleans say which keys are not seen."""
    if not ctx.has("mask"):
        return None
    b, mask, kind = ctx.b, ctx.value("mask"), int(ctx.get("mask_type", SEEN))
    if kind not in (SEEN, PADDING):
        raise ctx.unsupported(
            "a mask of keys together with one of padding; set torch.backends.mha.set_fastpath_enabled(False)"
        )
    if mask.type.dtype is DType.BOOL:
        mask = b.op("select", [mask, b.scalar(-math.inf, DType.F32), b.scalar(0, DType.F32)])
    return reshaped(b, mask, (batch, 1, 1, mask.type.shape[-1])) if kind == PADDING else mask


def _attended(ctx: NodeContext, x: Value) -> Value:
    b, heads = ctx.b, int(ctx.get("num_heads"))
    batch, length, width = x.type.shape
    joint = _linear(ctx, x, "qkv_weight", "qkv_bias")
    parts = []
    for n in range(3):
        part = reshaped(b, cut(b, joint, 2, (n * width, (n + 1) * width, 1)), (batch, length, heads, width // heads))
        parts.append(b.op("transpose", [part], perm=(0, 2, 1, 3)))
    q, k, v = parts
    found = attention(ctx, (q, k, v), _mask(ctx, batch), 1 / math.sqrt(width // heads), False)
    back = reshaped(b, b.op("transpose", [found], perm=(0, 2, 1, 3)), (batch, length, width))
    return _linear(ctx, back, "proj_weight", "proj_bias")


@converts("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(ctx: NodeContext) -> Value:
    b, x = ctx.b, ctx.value("src")
    first = bool(ctx.get("norm_first", False))
    x = b.op("add", [x, _attended(ctx, _norm(ctx, x, 1) if first else x)])
    x = x if first else _norm(ctx, x, 1)
    inner = _linear(ctx, _norm(ctx, x, 2) if first else x, "ffn_weight_1", "ffn_bias_1")
    gelu = bool(ctx.get("use_gelu", False))
    inner = b.op("gelu", [inner], approximate="none") if gelu else b.op("relu", [inner])
    x = b.op("add", [x, _linear(ctx, inner, "ffn_weight_2", "ffn_bias_2")])
    return x if first else _norm(ctx, x, 2)

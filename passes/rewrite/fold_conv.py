# SPDX-License-Identifier: Apache-2.0
"""Constants multiplied or added after a convolution move into its weights and bias (batch norm in inference)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memc.ir.core import Array, Op, Value

if TYPE_CHECKING:
    from memc.passes.rewrite.canonicalize import Context


def fold_into_conv(context: Context, op: Op) -> Sequence[Value] | None:
    """`op(conv(x, w, b), c)` as one conv with other constants, if nothing else reads the conv's result.

    `c` is constant per channel (shape [1, M, 1, ...] or one that broadcasts to it); w and b are constant, and
    nothing is folded where that would make an infinity or nan, or a second copy of weights that something else reads.
    A conv_transpose takes an added constant only.
    """
    if op.name not in ("add", "sub", "mul", "div"):
        return None
    sides = (0, 1) if op.name in ("add", "mul") else (0,)
    for side in sides:
        conv = op.operands[side].op
        if conv is None or conv.name not in ("conv", "conv_transpose") or not context.used_once(conv.result):
            continue
        # Half precision accumulates in f32, which folded half-precision weights could not express.
        if conv.result.type != op.result.type or conv.operands[1].type.dtype is not op.result.type.dtype:
            continue
        constant = _per_channel(context, op.operands[1 - side], conv.result)
        if constant is None:
            continue
        folded = _fold(context, op.name, conv, constant)
        if folded is not None:
            return [folded]
    return None


def _per_channel(context: Context, value: Value, result: Value) -> Array | None:
    """The constant as one number per channel of `result`, in a precision to compute in; None if it is no such."""
    data = context.constant_of(value)
    rank, channels = result.type.rank, result.type.shape[1]
    if data is None or not value.type.dtype.is_float or data.ndim > rank:
        return None
    shape = (1,) * (rank - data.ndim) + data.shape
    if shape[1] not in (1, channels) or any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(_wide(data).reshape(-1), (channels,))


def _wide(data: Array) -> Array:
    return data if data.dtype == np.float64 else data.astype(np.float32)


def _fold(context: Context, name: str, conv: Op, constant: Array) -> Value | None:
    x, w, *rest = conv.operands
    weights = context.constant_of(w)
    biases = [context.constant_of(b) for b in rest]
    if weights is None or any(b is None for b in biases):
        return None
    bias = _wide(biases[0]) if biases and biases[0] is not None else np.zeros_like(constant)
    if name in ("mul", "div"):
        if conv.name != "conv" or not context.used_once(w):
            return None
        with np.errstate(all="ignore"):
            factor = constant if name == "mul" else 1 / constant
            scaled = _wide(weights) * factor.reshape(-1, *[1] * (weights.ndim - 1))
            weights, bias = scaled.astype(weights.dtype), bias * factor
    else:
        bias = bias + constant if name == "add" else bias - constant
    dtype = (rest[0] if rest else w).type.dtype.numpy
    bias = bias.astype(dtype)
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        return None
    operands = [x]
    operands.append(w if weights is context.constant_of(w) else context.builder.constant(weights, w.name))
    operands.append(context.builder.constant(bias, rest[0].name if rest else f"{w.name}.bias"))
    plan = replace(conv.plan, library_kernel=None, precision=None)  # Maybe none of its kernels takes a bias.
    return context.builder.op(conv.name, operands, plan, **conv.attrs)

# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM: an LSTM whose products are those of DynamicQuantizeMatMul."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

from ...context import Known, NodeContext
from ..lstm import Products, lstm_over
from ..recurrent_sequences import part_of, sequences
from .domain import FLOAT, FLOATS, INT, TEXT, TEXTS, microsoft, require_shape
from .linear import SMALL
from .quantized_matmul import dynamically_quantized


@microsoft(
    "DynamicQuantizeLSTM",
    inputs=(12, 12),
    outputs=3,
    activation_alpha=FLOATS,
    activation_beta=FLOATS,
    activations=TEXTS,
    clip=FLOAT,
    direction=TEXT,
    hidden_size=INT,
    input_forget=INT,
)
def dynamic_quantize_lstm(ctx: NodeContext) -> Sequence[Known]:
    """Inputs: those of LSTM, with weights [directions, columns, 4 hidden], and scale and zero point of W and of R.

    The whole input is quantized with one scale, and at each step the whole state.
    """
    r = ctx.type(2)
    if ctx.type(0).dtype is not DType.F32 or r.rank != 3 or r.shape[2] != 4 * r.shape[1]:
        raise ctx.unsupported(f"expected an input of type f32 and R [directions, n, 4 n], got {ctx.type(0)} and {r}")
    s = sequences(ctx, r.shape[1])
    directions, width = len(s.directions), 4 * s.hidden
    require_shape(ctx, 1, (directions, s.x.type.shape[2], width), "W")
    require_shape(ctx, 2, (directions, s.hidden, width), "R")
    for index in (8, 9, 10, 11):
        if ctx.type(index).shape not in ((directions,), (directions, width)):
            raise ctx.unsupported(
                f"expected {directions} or {directions} times {width} elements, got {ctx.type(index)}"
            )
    whole, scale = dynamically_quantized(ctx, s.x)
    quantized = dataclasses.replace(s, x=whole)

    def products_of(direction: int) -> Products:
        of_w, of_r = _multiplied(ctx, direction, 1, 8), _multiplied(ctx, direction, 2, 10)
        return Products(
            lambda: quantized.projections(direction, lambda rows: of_w(rows, scale), _bias(ctx, direction, width)),
            lambda state: of_r(*dynamically_quantized(ctx, state)),
            (0, 1, 2, 3),
        )

    return lstm_over(s, products_of)


def _of_direction(ctx: NodeContext, index: int, direction: int) -> Value:
    """Input `index` without its leading axis of directions."""
    value = ctx.value(index)
    return part_of(ctx.b, value, 0, direction, direction + 1, value.type.shape[1:])


def _multiplied(ctx: NodeContext, direction: int, weight: int, scale: int) -> Callable[[Value, Value], Value]:
    """What multiplies i32 rows that have a scale by a weight whose scale and zero point are inputs `scale` and the next."""
    b = ctx.b
    if ctx.type(weight).dtype not in SMALL or ctx.type(scale + 1).dtype is not ctx.type(weight).dtype:
        raise ctx.unsupported(
            f"expected u8 or i8 weights and zero points, got {ctx.type(weight)} and {ctx.type(scale + 1)}"
        )
    matrix = cast(b, _of_direction(ctx, weight, direction), DType.I32)
    known = ctx.known(scale + 1)
    if known is None or known.any():
        matrix = b.op("sub", [matrix, cast(b, _of_direction(ctx, scale + 1, direction), DType.I32)])
    unit = _of_direction(ctx, scale, direction)

    def product(rows: Value, of_rows: Value) -> Value:
        total = b.op("matmul", [rows, matrix], transpose_a=False, transpose_b=False)
        return b.op("mul", [cast(b, total, DType.F32), b.op("mul", [of_rows, unit])])

    return product


def _bias(ctx: NodeContext, direction: int, width: int) -> Value | None:
    """The biases of both products together, [width]."""
    if not ctx.has(3):
        return None
    both = _of_direction(ctx, 3, direction)
    return ctx.b.op("add", [part_of(ctx.b, both, 0, n, n + width, (width,)) for n in (0, width)])

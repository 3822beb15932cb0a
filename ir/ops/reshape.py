# SPDX-License-Identifier: Apache-2.0
"""reshape: the same elements in row-major order under another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.common import count, flat_index, shape_attr
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    source, shape = operands[0], shape_attr(attrs)
    if math.prod(shape) != source.elements:
        raise OpError(f"expected attribute `shape` with {source.elements} elements like {source}, got {list(shape)}")
    return [source.with_shape(shape)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [inputs[0].reshape(results[0].shape)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    source, target = op.operands[0].type.shape, op.result.type.shape

    def body(*index: Expr) -> Expr:
        flat = flat_index(index, target)
        position: list[Expr | int] = []
        for extent in reversed(source):
            position.append(b.floormod(flat, extent) if not isinstance(flat, int) else 0)
            flat = b.floordiv(flat, extent) if not isinstance(flat, int) else 0
        return inputs[0][tuple(reversed(position))]

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    return [None if g is None else b.op("reshape", [g], shape=op.operands[0].type.shape)]


register(
    OpDef(
        name="reshape",
        doc="The same elements in row-major order under another shape.\n\n"
        "Attribute `shape`: the whole shape, no -1 or 0 placeholders; its element count equals the operand's.",
        spec="https://onnx.ai/onnx/operators/onnx__Reshape.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=lambda op: 0,
        slices=None,
        flops=no_flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)

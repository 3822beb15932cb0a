# SPDX-License-Identifier: Apache-2.0
"""broadcast: elements repeated along axes of extent 1 and new leading axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.common import broadcast_index, count, shape_attr
from .shared.derivatives import sum_to
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    shape, source = shape_attr(attrs), operands[0].shape
    tail = shape[len(shape) - len(source) :]
    if len(source) > len(shape) or any(have not in (1, want) for have, want in zip(source, tail)):
        raise OpError(f"expected an operand that broadcasts to {list(shape)}, got {operands[0]}")
    return [operands[0].with_shape(shape)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [np.broadcast_to(inputs[0], results[0].shape)]


def view(op: Op) -> int | None:
    """0 if nothing is repeated."""
    return 0 if op.operands[0].type.elements == op.result.type.elements else None


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    source, result = op.operands[0].type.shape, op.result.type

    def body(*index: Expr) -> Expr:
        return inputs[0][broadcast_index(index, source, result.shape)]

    return [b.compute(result, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    return [None if g is None else sum_to(b, g, op.operands[0].type)]


register(
    OpDef(
        name="broadcast",
        doc="The operand broadcast numpy-style to `shape`.\n\nAttribute `shape`: the whole result shape.",
        spec="https://onnx.ai/onnx/operators/onnx__Expand.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=view,
        slices=None,
        flops=no_flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)

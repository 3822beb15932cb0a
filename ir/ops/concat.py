# SPDX-License-Identifier: Apache-2.0
"""concat: tensors one after another along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.common import axis_attr, int_attr, same_dtype
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if not operands:
        raise OpError("expected at least one operand, got none")
    same_dtype(operands)
    first = operands[0]
    axis = axis_attr(attrs, first.rank)
    for other in operands[1:]:
        if other.rank != first.rank or any(
            a != b for i, (a, b) in enumerate(zip(first.shape, other.shape)) if i != axis
        ):
            raise OpError(f"expected operands that agree on all axes but {axis}, got {first} and {other}")
    total = sum(t.shape[axis] for t in operands)
    return [first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [np.concatenate(inputs, axis=int_attr(attrs, "axis"))]


def slices(op: Op) -> Sequence[int | None]:
    """Each operand is one run of the result if all axes before `axis` have extent 1."""
    if math.prod(op.result.type.shape[: int_attr(op.attrs, "axis")]) != 1:
        return [None for _ in op.operands]
    offsets: list[int | None] = []
    at = 0
    for value in op.operands:
        offsets.append(at)
        at += value.type.nbytes
    return offsets


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    axis = int_attr(op.attrs, "axis")
    parts: list[tuple[Tensor, int, int]] = []
    """Tensor, and its range on the axis of the result; empty operands are left out."""
    at = 0
    for tensor, value in zip(inputs, op.operands):
        extent = value.type.shape[axis]
        if extent:
            parts.append((tensor, at, at + extent))
        at += extent

    def body(*index: Expr) -> Expr:
        if not parts:
            return b.const(0, op.result.type.dtype)

        def pick(low: int, high: int) -> Expr:
            """A balanced tree over parts[low:high], so that deep concats stay shallow expressions."""
            if high - low == 1:
                tensor, start, _ = parts[low]
                return tensor[(*index[:axis], index[axis] - start, *index[axis + 1 :])]
            middle = (low + high) // 2
            return b.select(index[axis] < parts[middle][1], pick(low, middle), pick(middle, high))

        return pick(0, len(parts))

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None] * len(op.operands)
    axis, rank = int_attr(op.attrs, "axis"), g.type.rank
    found, at = [], 0
    for value in op.operands:
        stops = tuple(at + n if d == axis else n for d, n in enumerate(value.type.shape))
        starts = tuple(at if d == axis else 0 for d in range(rank))
        found.append(b.op("slice", [g], starts=starts, stops=stops, steps=(1,) * rank))
        at += value.type.shape[axis]
    return found


register(
    OpDef(
        name="concat",
        doc="The operands one after another along `axis`.\n\n"
        "At least one operand; they agree on element type, rank and all other axes.",
        spec="https://onnx.ai/onnx/operators/onnx__Concat.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=slices,
        flops=no_flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)

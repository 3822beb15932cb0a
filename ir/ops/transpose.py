# SPDX-License-Identifier: Apache-2.0
"""transpose: axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.common import count, ints_attr
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    perm = ints_attr(attrs, "perm")
    if sorted(perm) != list(range(operands[0].rank)):
        raise OpError(
            f"expected attribute `perm` to order the {operands[0].rank} axes of {operands[0]}, got {list(perm)}"
        )
    return [operands[0].with_shape(tuple(operands[0].shape[axis] for axis in perm))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [inputs[0].transpose(ints_attr(attrs, "perm"))]


def view(op: Op) -> int | None:
    """0 if only axes of extent 1 change places, so that the elements keep their order."""
    source = op.operands[0].type
    moved = [axis for axis in ints_attr(op.attrs, "perm") if source.shape[axis] != 1]
    return 0 if moved == sorted(moved) or source.elements == 0 else None


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    perm = ints_attr(op.attrs, "perm")

    def body(*index: Expr) -> Expr:
        return inputs[0][tuple(index[perm.index(axis)] for axis in range(len(perm)))]

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None]
    perm = ints_attr(op.attrs, "perm")
    return [b.op("transpose", [g], perm=tuple(perm.index(d) for d in range(len(perm))))]


register(
    OpDef(
        name="transpose",
        doc="Axes in another order.\n\nAttribute `perm`: axis i of the result is axis perm[i] of the operand.",
        spec="https://onnx.ai/onnx/operators/onnx__Transpose.html",
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

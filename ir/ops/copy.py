# SPDX-License-Identifier: Apache-2.0
"""copy: the same tensor in bytes of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..types import TensorType
from .shared.common import count, elementwise
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    return [operands[0]]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [inputs[0].copy()]


def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    return x[0]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    return [g]


register(
    OpDef(
        name="copy",
        doc="The operand's elements in other bytes.\n\n"
        "It is there to have bytes of its own, so it is neither in place nor a view.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=no_flops,
        lower=elementwise(element, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE, Trait.INJECTIVE, Trait.CHEAP}),
    )
)

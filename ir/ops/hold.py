# SPDX-License-Identifier: Apache-2.0
"""hold: a tensor that is never recomputed."""

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
    return [inputs[0]]


def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    return x[0]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    return [g]


register(
    OpDef(
        name="hold",
        doc="The operand's elements, computed once for all readers.\n\n"
        "A view, which costs nothing. Ops that decide together, such as a maximum and the search for its place, read their operand\n"
        "through one hold: no pass recomputes a held value, whose bits may differ the second time, so that all of them see\n"
        "the same elements.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=lambda op: 0,
        slices=None,
        flops=no_flops,
        lower=elementwise(element, raw=True),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.ONCE}),
    )
)

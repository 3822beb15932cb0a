# SPDX-License-Identifier: Apache-2.0
"""assign: the new content of a state."""

from __future__ import annotations

from collections.abc import Sequence

from ..core import Array, Op
from ..errors import OpError
from ..types import TensorType
from .shared.common import count, elementwise
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, flat, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    if operands[0] != operands[1]:
        raise OpError(f"expected a state and its new content of one type, got {operands[0]} and {operands[1]}")
    return [operands[0]]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [inputs[1].copy()]


def element(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    return x[1]


register(
    OpDef(
        name="assign",
        doc="The new content (operand 1) of a state (operand 0, a parameter of role state), written over the old one.\n\n"
        "The result is what the function returns for the state. Every other op that reads the state comes before, so\n"
        "the pass `donate` can make the result an alias of the state.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=flat,
        in_place=lambda op: (0, 1),
        view=None,
        slices=None,
        flops=no_flops,
        lower=elementwise(element, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE}),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""search_sorted: how many numbers of an ordered list are at most a value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import count
from .shared.op_def import Attrs, OpDef, Routine, flat, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    ordered, values = operands
    if ordered.rank != 1 or values.rank != 1 or ordered.dtype is not DType.I64 or values.dtype is not DType.I64:
        raise OpError(f"expected two vectors of i64, got {ordered} and {values}")
    return [values]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    ordered, values = inputs
    return [np.searchsorted(ordered, values, side="right").astype(np.int64)]


def flops(op: Op) -> int:
    return op.result.type.elements * op.operands[0].type.elements.bit_length()


register(
    OpDef(
        name="search_sorted",
        doc="For each value, how many numbers of an ordered vector are at most the value: the place behind them.\n\n"
        "Operands: numbers [n] that never fall, and values [m], both i64. Result i64[m]. Of running counts, it is where\n"
        "the element that reaches a count stands.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Routine(),
        library=(),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""constant: a small array written in the text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Array
from ..errors import OpError
from ..types import DType, TensorType
from .shared.op_def import Attrs, Literal, OpDef, flat, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    value = attrs.get("value")
    if operands or not isinstance(value, np.ndarray):
        raise OpError("expected no operand and a dense array as attribute `value`")
    return [TensorType(DType.from_numpy(value.dtype), value.shape)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    value = attrs["value"]
    assert isinstance(value, np.ndarray)
    return [value]


register(
    OpDef(
        name="constant",
        doc="A small array.\n\nAttribute `value`: the data, dense. It lives with the weights, never in the arena.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=no_flops,
        lower=Literal(),
        library=(),
    )
)

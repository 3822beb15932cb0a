# SPDX-License-Identifier: Apache-2.0
"""iota: positions along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import axis_attr, count, dtype_attr, int_attr, shape_attr
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, flat, no_flops, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 0)
    shape, dtype = shape_attr(attrs), dtype_attr(attrs, "dtype")
    axis_attr(attrs, len(shape))
    if dtype is DType.BOOL:
        raise OpError("expected attribute `dtype` to be a number type, got bool")
    return [TensorType(dtype, shape)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (result,) = results
    axis = int_attr(attrs, "axis")
    line = np.arange(result.shape[axis]).astype(result.dtype.numpy)
    return [np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(result.rank)]), result.shape)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    axis = int_attr(op.attrs, "axis")

    def body(*index: Expr) -> Expr:
        return b.cast(index[axis], op.result.type.dtype)

    return [b.compute(op.result.type, body)]


register(
    OpDef(
        name="iota",
        doc="Positions along an axis: element (i0, i1, ...) is i_axis.\n\n"
        "No operand. Attributes `shape`, `axis` and `dtype`, a number type.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=no_flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)

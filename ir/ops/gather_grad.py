# SPDX-License-Identifier: Apache-2.0
"""gather_grad: rows added up by index, the gradient of `gather` (of an embedding, for one)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .library.cpu_scatters import GATHER_GRAD_CPU
from .library.cuda_scatters import FEW_ROWS, GATHER_GRAD_CUDA
from .shared.casts import cast
from .shared.common import checked_indices, count, index_operand, int_attr, normalized
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, register
from .shared.window import accumulator, integer


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if len(operands) != 3:
        count(operands, 2)
    indices, g = operands[:2]
    index_operand(indices)
    axis, extent = integer(attrs, "axis", 0), integer(attrs, "extent", 1)
    if len(operands) == 3 and operands[2].shape != (extent,):
        raise OpError(f"expected the last places of {extent} rows, got {operands[2]}")
    if not g.dtype.is_float or g.shape[axis : axis + indices.rank] != indices.shape or g.rank < axis + indices.rank:
        raise OpError(f"expected a gradient of floats with the axes of {indices} from {axis} on, got {g}")
    shape = (*g.shape[:axis], extent, *g.shape[axis + indices.rank :])
    return [TensorType(accumulator(g.dtype), shape)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    indices, g = inputs[:2]
    (result,) = results
    axis, extent = int_attr(attrs, "axis"), int_attr(attrs, "extent")
    total = np.zeros(result.shape, dtype=result.dtype.numpy)
    picked = checked_indices(indices, extent).reshape(-1)
    rows = g.reshape(*g.shape[:axis], picked.size, *g.shape[axis + indices.ndim :])
    np.add.at(np.moveaxis(total, axis, 0), picked, np.moveaxis(rows, axis, 0).astype(total.dtype))
    return [total]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    indices, g = (v.type for v in op.operands[:2])
    axis, extent = int_attr(op.attrs, "axis"), int_attr(op.attrs, "extent")
    dtype = op.result.type.dtype

    def body(*index: Expr) -> Expr:
        before, after = index[:axis], index[axis + 1 :]
        few = extent <= FEW_ROWS
        end = inputs[2][index[axis]] + 1 if len(inputs) == 3 else None
        found = None if few else b.sum_of_hits(inputs[0], extent, index[axis], inputs[1], before, after, end)
        if found is not None:
            return found

        def term(*k: Expr) -> Expr:
            place = k[: indices.rank]
            aimed = normalized(b, inputs[0][place], extent)
            hit = b.equal(aimed, b.cast(index[axis], indices.dtype))
            value = b.cast(inputs[1][(*before, *place, *after)], dtype)
            return b.select(hit, value, b.const(0, dtype))

        return b.reduce("sum", indices.shape or (1,), term)

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (d,) = grads
    indices, g, *last = op.operands
    axis = int_attr(op.attrs, "axis")
    of_g = None if d is None else cast(b, b.op("gather", [d, indices], axis=axis), g.type.dtype)
    return [None, of_g, *[None] * len(last)]


def _flops(op: Op) -> int:
    """Sums, or comparisons of all indices with all rows, whichever are more."""
    indices, g = (v.type for v in op.operands[:2])
    return max(g.elements, indices.elements * int_attr(op.attrs, "extent"))


register(
    OpDef(
        name="gather_grad",
        doc="The gradient of gather in its data, from indices and the gradient g in its result: rows of g with one index\n"
        "are added up.\n\n"
        "A third operand may say at which place each row is named last, as `scatter_elements_combine` finds it, -1 for\n"
        "none (i32 [extent]): the generated kernel looks no further.\n\n"
        "Attributes `axis`, and `extent`: that of the data's axis. The result is g's shape with the axes of the indices\n"
        "replaced by `extent`; f16 and bf16 give an f32 result. The generated kernel looks at all indices for every row: on\n"
        f"CUDA once for a warp's elements, if they lie in one row; up to {FEW_ROWS} rows are added up like any other sum.\n"
        "The libraries' look at each index once, or sort them.",
        spec=None,
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=_flops,
        lower=Compute(lower),
        library=(GATHER_GRAD_CPU, GATHER_GRAD_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)

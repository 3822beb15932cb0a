# SPDX-License-Identifier: Apache-2.0
"""gather, gather_elements, gather_nd: elements picked by index tensors.

Indices are i32 or i64 and count from the end where negative. The numpy reference raises on an index out of range; a
compiled kernel clamps it, so that it never reads foreign memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..type_inference import InferFn
from ..types import TensorType
from .shared.casts import cast
from .shared.common import axis_attr, checked_indices, count, index_operand, int_attr, normalized
from .shared.derivatives import zeros
from .shared.op_def import (
    Attrs,
    Builder,
    Compute,
    ComputeFn,
    EvaluateFn,
    Expr,
    GradientFn,
    OpDef,
    Tensor,
    Trait,
    no_flops,
    register,
)


def infer_gather(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    data, indices = operands
    index_operand(indices)
    axis = axis_attr(attrs, data.rank)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    _not_empty(data, (data.shape[axis],), TensorType(data.dtype, shape))
    return [data.with_shape(shape)]


def _not_empty(data: TensorType, extents: Sequence[int], result: TensorType) -> None:
    if 0 in extents and result.elements:
        raise OpError(f"expected elements to pick from in {data}, got none for a result {result}")


def evaluate_gather(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    data, indices = inputs
    axis = int_attr(attrs, "axis")
    return [data.take(checked_indices(indices, data.shape[axis]), axis=axis).reshape(results[0].shape)]


def lower_gather(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    axis = int_attr(op.attrs, "axis")
    data, indices = (v.type for v in op.operands)

    def body(*index: Expr) -> Expr:
        picked = inputs[1][tuple(index[axis : axis + indices.rank])]
        rest = index[axis + indices.rank :]
        return inputs[0][(*index[:axis], normalized(b, picked, data.shape[axis]), *rest)]

    return [b.compute(op.result.type, body)]


def infer_elements(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    data, indices = operands
    index_operand(indices)
    axis = axis_attr(attrs, data.rank)
    if indices.rank != data.rank or any(i > d for k, (i, d) in enumerate(zip(indices.shape, data.shape)) if k != axis):
        raise OpError(f"expected indices within {data} on all axes but {axis}, got {indices}")
    result = data.with_shape(indices.shape)
    _not_empty(data, (data.shape[axis],), result)
    return [result]


def evaluate_elements(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    data, indices = inputs
    axis = int_attr(attrs, "axis")
    position = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    position[axis] = checked_indices(indices, data.shape[axis])
    return [data[tuple(position)]]


def lower_elements(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    axis = int_attr(op.attrs, "axis")
    extent = op.operands[0].type.shape[axis]

    def body(*index: Expr) -> Expr:
        picked = normalized(b, inputs[1][tuple(index)], extent)
        return inputs[0][(*index[:axis], picked, *index[axis + 1 :])]

    return [b.compute(op.result.type, body)]


def infer_nd(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    data, indices = operands
    index_operand(indices)
    batch = int_attr(attrs, "batch_dims")
    if not 0 <= batch < min(data.rank, indices.rank):
        raise OpError(f"expected attribute `batch_dims` in [0, {min(data.rank, indices.rank)}), got {batch}")
    if data.shape[:batch] != indices.shape[:batch]:
        raise OpError(f"expected {batch} equal leading extents, got {data} and {indices}")
    depth = indices.shape[-1]
    if not 1 <= depth <= data.rank - batch:
        raise OpError(f"expected 1 to {data.rank - batch} indices per element into {data}, got {depth} in {indices}")
    result = data.with_shape((*indices.shape[:-1], *data.shape[batch + depth :]))
    _not_empty(data, data.shape[batch : batch + depth], result)
    return [result]


def evaluate_nd(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    data, indices = inputs
    batch, depth = int_attr(attrs, "batch_dims"), indices.shape[-1]
    outer = indices.shape[:-1]
    position = [np.arange(outer[k]).reshape([-1 if i == k else 1 for i in range(len(outer))]) for k in range(batch)]
    position += [checked_indices(indices[..., k], data.shape[batch + k]) for k in range(depth)]
    return [data[tuple(position)].reshape(results[0].shape)]


def lower_nd(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    batch = int_attr(op.attrs, "batch_dims")
    data, indices = (v.type for v in op.operands)
    outer, depth = indices.rank - 1, indices.shape[-1]

    def body(*index: Expr) -> Expr:
        picked = [normalized(b, inputs[1][(*index[:outer], k)], data.shape[batch + k]) for k in range(depth)]
        return inputs[0][(*index[:batch], *picked, *index[outer:])]

    return [b.compute(op.result.type, body)]


def gradient_gather(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads the indices. What several results took from one place is added up."""
    (g,) = grads
    data, indices = op.operands
    if g is None or not data.type.dtype.is_float:
        return [None, None]
    if g.type.elements == 0:
        return [zeros(b, data.type), None]
    axis = int_attr(op.attrs, "axis")
    total = b.op("gather_grad", [indices, g], axis=axis, extent=data.type.shape[axis])
    return [cast(b, total, data.type.dtype), None]


def gradient_elements(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads the indices."""
    (g,) = grads
    data, indices = op.operands
    if g is None or not data.type.dtype.is_float:
        return [None, None]
    axis = int_attr(op.attrs, "axis")
    return [b.op("scatter_elements", [zeros(b, data.type), indices, g], axis=axis, reduction="add"), None]


def gradient_nd(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads the indices; the batch axes become indices too."""
    (g,) = grads
    data, indices = op.operands
    if g is None or not data.type.dtype.is_float:
        return [None, None]
    shape, dtype = (*indices.type.shape[:-1], 1), indices.type.dtype
    lead = [b.op("iota", [], shape=shape, axis=axis, dtype=dtype) for axis in range(int_attr(op.attrs, "batch_dims"))]
    full = b.op("concat", [*lead, indices], axis=indices.type.rank - 1) if lead else indices
    return [b.op("scatter_nd", [zeros(b, data.type), full, g], reduction="add"), None]


def _define(
    name: str,
    doc: str,
    spec: str,
    infer: InferFn,
    evaluate: EvaluateFn,
    lower: ComputeFn,
    gradient: GradientFn,
) -> None:
    register(
        OpDef(
            name=name,
            doc=doc,
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html",
            infer=infer,
            evaluate=evaluate,
            gradient=gradient,
            in_place=None,
            view=None,
            slices=None,
            flops=no_flops,
            lower=Compute(lower),
            library=(),
            traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
        )
    )


_define(
    "gather",
    "Slices of `data` along `axis` at `indices`.\n\n"
    "Operands data and indices; shape data[:axis] + indices + data[axis + 1:].",
    "Gather",
    infer_gather,
    evaluate_gather,
    lower_gather,
    gradient_gather,
)
_define(
    "gather_elements",
    "Element (i, j, ...) is data's at the same place with the coordinate on `axis` replaced by indices[i, j, ...].\n\n"
    "Operands data and indices, of one rank; the result has the shape of indices.",
    "GatherElements",
    infer_elements,
    evaluate_elements,
    lower_elements,
    gradient_elements,
)
_define(
    "gather_nd",
    "Slices of `data` at index tuples along the last axis of `indices`.\n\n"
    "Operands data and indices, with `batch_dims` equal leading axes; shape indices[:-1] + data[batch_dims + depth:],\n"
    "where depth = indices.shape[-1].",
    "GatherND",
    infer_nd,
    evaluate_nd,
    lower_nd,
    gradient_nd,
)

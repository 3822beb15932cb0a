# SPDX-License-Identifier: Apache-2.0
"""scatter_elements_combine, scatter_nd_combine: for each element of a scatter's result, what its updates amount to.

These are the reductions that `scatter_elements` and `scatter_nd` expand into: with reduction `none` the row-major
position of the last update meant for the element (-1 if there is none), otherwise those updates' sum, product, maximum
or minimum (the neutral element if there is none). Sums and products of f16 and bf16 are f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .library.cpu_scatters import ELEMENTS_COMBINE_CPU, ND_COMBINE_CPU, updates_of
from .library.cuda_scatters import ELEMENTS_COMBINE_CUDA, ND_COMBINE_CUDA
from .scatter import REDUCTIONS, check_elements, check_nd, evaluate_elements, evaluate_nd
from .shared.common import (
    axis_attr,
    compute_dtype,
    count,
    flat_index,
    index_operand,
    int_attr,
    normalized,
    shape_attr,
    str_attr,
)
from .shared.op_def import Attrs, Builder, Compute, Expr, LibraryKernel, OpDef, Tensor, Trait, register

_KINDS = {"none": "max", "add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _combined_type(updates: TensorType, attrs: Attrs) -> TensorType:
    reduction = str_attr(attrs, "reduction", REDUCTIONS)
    if reduction != "none" and updates.dtype is DType.BOOL:
        raise OpError(f"expected numbers for reduction `{reduction}`, got {updates}")
    if reduction == "none":
        dtype = DType.I32 if updates.elements < 2**31 else DType.I64
    else:
        dtype = compute_dtype(updates.dtype) if reduction in ("add", "mul") else updates.dtype
    return TensorType(dtype, shape_attr(attrs))


def _neutral(reduction: str, dtype: DType) -> bool | int | float:
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    if dtype.is_float:
        return float("-inf") if reduction == "max" else float("inf")
    info = np.iinfo(dtype.numpy)
    return int(info.min if reduction == "max" else info.max)


def infer_elements(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    index_operand(operands[0])
    axis_attr(attrs, operands[0].rank)
    indices, updates = operands
    result = _combined_type(updates, attrs)
    check_elements(result, indices, updates, axis_attr(attrs, result.rank))
    return [result]


def infer_nd(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 2)
    index_operand(operands[0])
    indices, updates = operands
    result = _combined_type(updates, attrs)
    check_nd(result, indices, updates)
    return [result]


def _evaluate(scatter: Callable[..., Sequence[Array]]) -> Callable[..., Sequence[Array]]:
    def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        indices, updates = inputs
        dtype = results[0].dtype
        reduction = str_attr(attrs, "reduction", REDUCTIONS)
        start: Any = -1
        if reduction == "none":
            updates = np.arange(updates.size).reshape(updates.shape)
        else:
            start = _neutral(reduction, dtype)
        data = np.full(results[0].shape, start, dtype=dtype.numpy)
        return scatter([data, indices, updates.astype(dtype.numpy)], attrs, results)

    return evaluate


def _contribution(b: Builder, op: Op, hit: Expr, update: Tensor, where: Sequence[Any]) -> Expr:
    """What an update adds to the reduction of an element: its position or value if it is meant for it."""
    dtype, reduction = op.result.type.dtype, str_attr(op.attrs, "reduction", REDUCTIONS)
    if reduction == "none":
        position = b.cast(flat_index(where, op.operands[1].type.shape), dtype)
        return b.select(hit, position, b.const(-1, dtype))
    value = update[tuple(where)]
    if dtype is not op.operands[1].type.dtype:
        value = b.cast(value, dtype)
    return b.select(hit, value, b.const(_neutral(reduction, dtype), dtype))


def lower_elements(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    axis, shape = int_attr(op.attrs, "axis"), op.result.type.shape
    span = op.operands[0].type.shape
    kind = _KINDS[str_attr(op.attrs, "reduction", REDUCTIONS)]

    def body(*index: Expr) -> Expr:
        def term(k: Expr) -> Expr:
            where = (*index[:axis], k, *index[axis + 1 :])
            # Updates may cover only a part of the other axes; the select keeps reads inside that.
            inside = [i < n for axis_, (i, n) in enumerate(zip(index, span)) if axis_ != axis and n < shape[axis_]]
            aimed = b.equal(normalized(b, inputs[0][where], shape[axis]), b.cast(index[axis], indices_dtype))
            hit = aimed
            for test in inside:
                hit = b.select(test, hit, b.const(False, DType.BOOL))
            return _contribution(b, op, hit, inputs[1], where)

        return b.reduce(kind, (span[axis],), term)

    indices_dtype = op.operands[0].type.dtype
    return [b.compute(op.result.type, body)]


def lower_nd(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    indices, shape = op.operands[0].type, op.result.type.shape
    outer, depth = indices.shape[:-1], indices.shape[-1]
    kind = _KINDS[str_attr(op.attrs, "reduction", REDUCTIONS)]

    def body(*index: Expr) -> Expr:
        def term(*k: Expr) -> Expr:
            tests = [
                b.equal(normalized(b, inputs[0][(*k, axis)], shape[axis]), b.cast(index[axis], indices.dtype))
                for axis in range(depth)
            ]
            return _contribution(b, op, b.logical_and(*tests), inputs[1], (*k, *index[depth:]))

        if not outer:
            # A reduction over nothing but the one update.
            return b.reduce(kind, (1,), lambda once: term())
        return b.reduce(kind, outer, term)

    return [b.compute(op.result.type, body)]


def _comparisons(op: Op) -> int:
    return op.result.type.elements * updates_of(op)[0]


def _define(name: str, infer: Any, evaluate: Any, lower: Any, library: Sequence[LibraryKernel], doc: str) -> None:
    register(
        OpDef(
            name=name,
            doc=doc,
            spec=None,
            infer=infer,
            evaluate=evaluate,
            gradient=None,
            in_place=None,
            view=None,
            slices=None,
            flops=_comparisons,
            lower=Compute(lower),
            library=library,
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_DOC = (
    "Operands indices and updates as of the scatter. Attributes `shape`, the result's, and `reduction`: `none` gives the\n"
    "row-major position of the last update of an element, or -1; `add`, `mul`, `max`, `min` combine its updates."
)
_define(
    "scatter_elements_combine",
    infer_elements,
    _evaluate(evaluate_elements),
    lower_elements,
    (ELEMENTS_COMBINE_CPU, ELEMENTS_COMBINE_CUDA),
    "For each element of a scatter_elements along `axis`, what its updates amount to.\n\n" + _DOC,
)
_define(
    "scatter_nd_combine",
    infer_nd,
    _evaluate(evaluate_nd),
    lower_nd,
    (ND_COMBINE_CPU, ND_COMBINE_CUDA),
    "For each element of a scatter_nd, what its updates amount to.\n\n" + _DOC,
)

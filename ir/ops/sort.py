# SPDX-License-Identifier: Apache-2.0
"""sort_ranks, rank_positions, top_k.

Generated kernels sort by counting comparisons: in time that grows with the square of the axis, and with no memory besides
the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .library.cpu_sort_scan import RANK_POSITIONS_CPU, SORT_RANKS_CPU, TOP_K_CPU
from .library.cuda_sort_scan import RANK_POSITIONS_CUDA, SORT_RANKS_CUDA, TOP_K_CUDA
from .shared.axes import axis_of, flag_of, only
from .shared.derivatives import zeros
from .shared.op_def import (
    Attrs,
    Builder,
    Compute,
    Decompose,
    Expr,
    GradientFn,
    LibraryKernel,
    OpDef,
    Tensor,
    Trait,
    flat,
    register,
)

_SPEC = "https://onnx.ai/onnx/operators/onnx__TopK.html"


def order(x: Array, axis: int, descending: bool) -> Array:
    """Positions in sorted order along `axis`; equal elements (all nans are) keep theirs; nan is the greatest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


def infer_ranks(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    source = only(operands)
    axis_of(attrs, source)
    flag_of(attrs, "descending")
    if source.dtype is DType.BOOL:
        raise OpError(f"expected numbers, got {source}")
    return [source.with_dtype(DType.I64)]


def evaluate_ranks(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis = int(attrs["axis"])  # type: ignore[arg-type]
    sorted_positions = order(inputs[0], axis, bool(attrs["descending"]))
    return [np.argsort(sorted_positions, axis=axis, kind="stable").astype(np.int64)]


def lower_ranks(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    source = op.operands[0].type
    axis, descending = axis_of(op.attrs, source), op.attrs["descending"]
    x = inputs[0]

    def less(p: Expr, q: Expr) -> Expr:
        if not source.dtype.is_float:
            return p < q
        return b.logical_or(p < q, b.logical_and(b.logical_not(b.unary("isnan", p)), b.unary("isnan", q)))

    def body(*index: Expr) -> Expr:
        i = index[axis]

        def element(j: Expr) -> Expr:
            mine, other = x[tuple(index)], x[tuple(j if d == axis else p for d, p in enumerate(index))]
            first, second = (mine, other) if descending else (other, mine)
            # Neither less: equal, so the earlier position ranks first.
            tie = b.logical_and(b.logical_not(less(second, first)), j < i)
            before = b.logical_or(less(first, second), tie)
            return b.select(before, b.const(1, DType.I64), b.const(0, DType.I64))

        return b.reduce("sum", [source.shape[axis]], element)

    return [b.compute(op.result.type, body)]


def infer_positions(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    source = only(operands)
    axis, count = axis_of(attrs, source), attrs.get("count")
    if source.dtype is not DType.I64:
        raise OpError(f"expected ranks of i64, got {source}")
    return [source.with_shape(_shortened(source, axis, count))]


def evaluate_positions(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis, count = int(attrs["axis"]), int(attrs["count"])  # type: ignore[arg-type]
    return [np.take(np.argsort(inputs[0], axis=axis, kind="stable"), range(count), axis=axis).astype(np.int64)]


def lower_positions(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    source = op.operands[0].type
    axis = axis_of(op.attrs, source)

    def body(*index: Expr) -> Expr:
        def element(i: Expr) -> Expr:
            rank = inputs[0][tuple(i if d == axis else p for d, p in enumerate(index))]
            is_wanted = b.equal(rank, b.cast(index[axis], DType.I64))
            return b.select(is_wanted, b.cast(i, DType.I64), b.const(0, DType.I64))

        return b.reduce("sum", [source.shape[axis]], element)

    return [b.compute(op.result.type, body)]


def infer_top_k(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    source = only(operands)
    axis = axis_of(attrs, source)
    flag_of(attrs, "largest")
    if source.dtype is DType.BOOL:
        raise OpError(f"expected numbers, got {source}")
    kept = source.with_shape(_shortened(source, axis, attrs.get("k"), "k"))
    return [kept, kept.with_dtype(DType.I64)]


def evaluate_top_k(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis, k = int(attrs["axis"]), int(attrs["k"])  # type: ignore[arg-type]
    positions = np.take(order(inputs[0], axis, bool(attrs["largest"])), range(k), axis=axis).astype(np.int64)
    return [np.take_along_axis(inputs[0], positions, axis=axis), positions]


def decompose_top_k(b: IRBuilder, op: Op) -> Sequence[Value]:
    x, axis = op.operands[0], axis_of(op.attrs, op.operands[0].type)
    ranks = b.op("sort_ranks", [x], axis=axis, descending=bool(op.attrs["largest"]))
    positions = b.op("rank_positions", [ranks], axis=axis, count=op.attrs["k"])
    return [b.op("gather_elements", [x, positions], axis=axis), positions]


def gradient_top_k(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Back to where the elements came from. Reads the positions."""
    g, x = grads[0], op.operands[0].type
    if g is None or not x.dtype.is_float:
        return [None]
    axis = axis_of(op.attrs, x)
    return [b.op("scatter_elements", [zeros(b, x), op.results[1], g], axis=axis, reduction="add")]


def _shortened(source: TensorType, axis: int, count: Any, name: str = "count") -> tuple[int, ...]:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= source.shape[axis]:
        raise OpError(f"expected attribute `{name}` from 0 to {source.shape[axis]} for axis {axis}, got {count}")
    return tuple(count if d == axis else n for d, n in enumerate(source.shape))


def _comparisons(op: Op) -> int:
    source = op.operands[0].type
    return source.elements * source.shape[axis_of(op.attrs, source)]


def _sort_steps(op: Op) -> int:
    source = op.operands[0].type
    return source.elements * source.shape[axis_of(op.attrs, source)].bit_length()


def _define(
    name: str,
    doc: str,
    infer: Any,
    evaluate: Any,
    lower: Compute | Decompose,
    library: Sequence[LibraryKernel],
    flops: Any,
    gradient: GradientFn = flat,
) -> None:
    register(
        OpDef(
            name=name,
            doc=doc,
            spec=_SPEC,
            infer=infer,
            evaluate=evaluate,
            gradient=gradient,
            in_place=None,
            view=None,
            slices=None,
            flops=flops,
            lower=lower,
            library=library,
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_define(
    "sort_ranks",
    "Rank (i64, from 0) of each element among those along an axis: a permutation.\n\n"
    "Attributes `axis` and `descending`. Of equal elements the earlier ranks first; nan is the greatest.",
    infer_ranks,
    evaluate_ranks,
    Compute(lower_ranks),
    (SORT_RANKS_CPU, SORT_RANKS_CUDA),
    _comparisons,
)
_define(
    "rank_positions",
    "Where along an axis the ranks 0, 1, ... count-1 are (i64).\n\n"
    "The operand holds a permutation of 0..n-1 along the axis. Attributes `axis` and `count` (at most n).",
    infer_positions,
    evaluate_positions,
    Compute(lower_positions),
    (RANK_POSITIONS_CPU, RANK_POSITIONS_CUDA),
    _comparisons,
)
_define(
    "top_k",
    "The k greatest or least elements along an axis, in sorted order, and their positions (i64).\n\n"
    "Attributes `axis`, `k`, `largest`. Of equal elements the earlier comes first; nan is the greatest.",
    infer_top_k,
    evaluate_top_k,
    Decompose(decompose_top_k),
    (TOP_K_CPU, TOP_K_CUDA),
    _sort_steps,
    gradient_top_k,
)

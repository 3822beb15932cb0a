# SPDX-License-Identifier: Apache-2.0
"""attention: values averaged with weights that queries and keys give (Vaswani et al., 2017, equation 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .library.cuda_attention import ATTENTION_CUDA
from .shared.axes import axis_of, number_of
from .shared.casts import HALF, cast, widen
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register


def heads_first(rank: int, axis: int) -> tuple[int, ...]:
    """What brings the positions at `axis` behind the heads."""
    return (*(d for d in range(rank - 1) if d != axis), axis, rank - 1)


def scores_of(q: TensorType, k: TensorType, axis: int) -> tuple[int, ...]:
    """The scores' shape: [heads..., queries, keys]."""
    heads = (n for d, n in enumerate(q.shape[:-1]) if d != axis)
    return (*heads, q.shape[axis], k.shape[axis])


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if len(operands) not in (3, 4):
        raise OpError(f"expected the operands q, k, v and maybe a mask, got {len(operands)}")
    q, k, v = operands[:3]
    axis = axis_of(attrs, q)
    number_of(attrs, "scale")
    if not q.dtype.is_float or any(t.dtype is not q.dtype for t in operands):
        raise OpError(f"expected floats of one type, got {', '.join(map(str, operands))}")
    if q.rank < 2 or axis == q.rank - 1:
        raise OpError(f"expected an `axis` before the last one of {q}, got {axis}")

    def without(t: TensorType, *axes: int) -> list[int]:
        return [n for d, n in enumerate(t.shape) if d not in axes]

    last = q.rank - 1
    if k.rank != q.rank or without(k, axis) != without(q, axis):
        raise OpError(f"expected keys of {q} with any extent of axis {axis}, got {k}")
    if v.rank != q.rank or without(v, last) != without(k, last):
        raise OpError(f"expected values for the keys {k}, got {v}")
    if len(operands) == 4:
        scores = scores_of(q, k, axis)
        try:
            fits = np.broadcast_shapes(operands[3].shape, scores) == scores
        except ValueError:
            fits = False
        if not fits:
            raise OpError(f"expected a mask that broadcasts to {q.with_shape(scores)}, got {operands[3]}")
    return [q.with_shape((*q.shape[:-1], v.shape[-1]))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    dtype = results[0].dtype
    axis = axis_of(attrs, results[0])
    wide = [x.astype(np.float32) if dtype in HALF else x for x in inputs]
    q, k, v = (np.moveaxis(x, axis, -2) for x in wide[:3])
    with np.errstate(invalid="ignore", over="ignore"):
        scores = np.matmul(q, k.swapaxes(-1, -2)) * wide[0].dtype.type(number_of(attrs, "scale"))
        if len(wide) == 4:
            scores = scores + wide[3]
        powers = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
        found = np.matmul(powers / np.sum(powers, axis=-1, keepdims=True), v)
    return [np.moveaxis(found, -2, axis).astype(dtype.numpy)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    q, k, v, *mask = (widen(b, x) for x in op.operands)
    axis = axis_of(op.attrs, q.type)
    rank = q.type.rank
    order = heads_first(rank, axis)

    def moved(x: Value, perm: Sequence[int]) -> Value:
        return x if list(perm) == list(range(rank)) else b.op("transpose", [x], perm=tuple(perm))

    q, k, v = (moved(x, order) for x in (q, k, v))
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=True)
    scores = b.op("mul", [scores, b.scalar(number_of(op.attrs, "scale"), scores.type.dtype)])
    if mask:
        scores = b.op("add", [scores, *mask])
    weights = b.op("softmax", [scores], axis=rank - 1)
    found = b.op("matmul", [weights, v], transpose_a=False, transpose_b=False)
    back = [order.index(d) for d in range(rank)]
    return [cast(b, moved(found, back), op.result.type.dtype)]


def flops(op: Op) -> int:
    """Two products, and a softmax of the scores."""
    q, k = (v.type for v in op.operands[:2])
    scores = math.prod(scores_of(q, k, axis_of(op.attrs, q)))
    return scores * (2 * q.shape[-1] + 2 * op.result.type.shape[-1] + 5)


def in_place(op: Op) -> Sequence[int]:
    """A row of the queries is needed for the same row of the result alone."""
    return (0,) if op.operands[0].type == op.result.type else ()


register(
    OpDef(
        name="attention",
        doc="softmax(scale q k^T + mask) v, head by head: values averaged with weights that queries and keys give.\n\n"
        "Operands q [..., M, D], k [..., N, D], v [..., N, E] and maybe a mask, which broadcasts to the scores\n"
        "[heads..., M, N]; the result is [..., M, E]. Attributes `scale`, and `axis`: where M and N are, before the\n"
        "last one; all other axes are heads, whose extents are equal. Half precision is computed in f32. A row of\n"
        "the mask of only -inf gives nan.",
        spec="https://onnx.ai/onnx/operators/onnx__Attention.html",
        infer=infer,
        evaluate=evaluate,
        gradient=None,
        in_place=in_place,
        view=None,
        slices=None,
        flops=flops,
        lower=Decompose(decompose),
        library=(ATTENTION_CUDA,),
        traits=frozenset({Trait.REDUCTION}),
    )
)

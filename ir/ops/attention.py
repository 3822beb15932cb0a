# SPDX-License-Identifier: Apache-2.0
"""attention: values averaged with weights that queries and keys give (Vaswani et al., 2017, equation 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .library.cpu_attention import ATTENTION_CPU
from .library.cuda_attention import ATTENTION_CUDA
from .shared.attention_parts import (
    build_back,
    build_blind,
    build_heads,
    build_scores,
    evaluate_scores,
    heads_of,
    is_zero_blind,
    parts_of,
    repeated_heads,
    require_fitting,
    seen_scores,
)
from .shared.axes import axis_of
from .shared.casts import HALF, cast, widen
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_fitting(operands, attrs)
    if parts_of(operands).seed is not None:
        raise OpError("expected no dropout in inference, got a seed")
    q, _, v = operands[:3]
    return [q.with_shape((*q.shape[:-1], v.shape[-1]))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    dtype = results[0].dtype
    axis = axis_of(attrs, results[0])
    wide = [x.astype(np.float32) if x.dtype == dtype.numpy and dtype in HALF else x for x in inputs]
    q, k, v = (np.moveaxis(x, axis, -2) for x in wide[:3])
    k, v = (repeated_heads(x, q.shape[:-2]) for x in (k, v))
    scores, _ = evaluate_scores(q, k, wide[3] if len(wide) > 3 else None, attrs)
    with np.errstate(invalid="ignore", over="ignore"):
        most = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - most)
        weights = powers / np.sum(powers, axis=-1, keepdims=True)
        if is_zero_blind(attrs):
            weights = np.where(most == -np.inf, weights.dtype.type(0), weights)
        found = np.matmul(weights, v)
    return [np.moveaxis(found, -2, axis).astype(dtype.numpy)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    q, k, v, *mask = (widen(b, x) for x in op.operands)
    axis = axis_of(op.attrs, q.type)
    heads = heads_of(q.type, axis)
    q, k, v = (build_heads(b, x, axis, heads) for x in (q, k, v))
    scores, _ = build_scores(b, q, k, mask[0] if mask else None, op.attrs)
    weights = b.op("softmax", [scores], axis=scores.type.rank - 1)
    if is_zero_blind(op.attrs):
        most = b.op("reduce_max", [scores], axes=(scores.type.rank - 1,), keepdims=True)
        weights = b.op("select", [build_blind(b, most), b.scalar(0, weights.type.dtype), weights])
    found = b.op("matmul", [weights, v], transpose_a=False, transpose_b=False)
    return [cast(b, build_back(b, found, axis, heads), op.result.type.dtype)]


def flops(op: Op) -> int:
    """Two products, and a softmax of the scores."""
    return seen_scores(op) * (2 * op.operands[0].type.shape[-1] + 2 * op.result.type.shape[-1] + 5)


def in_place(op: Op) -> Sequence[int]:
    """A row of the queries is needed for the same row of the result alone."""
    return (0,) if op.operands[0].type == op.result.type else ()


register(
    OpDef(
        name="attention",
        doc="softmax(scale q k^T + mask) v, head by head: values averaged with weights that queries and keys give.\n\n"
        "Operands q [..., M, D], k [..., N, D], v [..., N, E] and maybe a mask, which broadcasts to the scores\n"
        "[heads..., M, N]; the result is [..., M, E]. Attributes `scale`, and `axis`: where M and N are, before the\n"
        "last one; all other axes are heads, of which k and v have as many as q, or a divisor: head h of q reads head\n"
        "h // (q's heads / k's heads). A mask of floats, of their type or as wide as sums are, is added; one of bool says which keys a query sees. `diagonal`,\n"
        "which may be missing: query i sees no key beyond i + diagonal, and with `window` no more than so many up to there. `cap`: scores are\n"
        "cap tanh(scores / cap) before the mask. A row that sees no key is nan, as softmax of only -inf, or 0 with `blind = zero`. Half\n"
        "precision is computed in f32.",
        spec="https://onnx.ai/onnx/operators/onnx__Attention.html",
        infer=infer,
        evaluate=evaluate,
        gradient=None,
        in_place=in_place,
        view=None,
        slices=None,
        flops=flops,
        lower=Decompose(decompose),
        library=(ATTENTION_CPU, ATTENTION_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""attention_training and attention_grad: attention whose gradient keeps no scores (Dao et al., FlashAttention, 2022,
algorithms 1 and 4): one number for each row stands for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .library.cpu_attention import ATTENTION_CPU, ATTENTION_GRAD_CPU
from .library.cuda_attention import ATTENTION_GRAD_CUDA, ATTENTION_TRAINING_CUDA
from .shared.attention_parts import (
    build_back,
    build_heads,
    build_scores,
    evaluate_scores,
    heads_of,
    repeated_heads,
    require_fitting,
    seen_scores,
    summed_heads,
)
from .shared.axes import axis_of, number_of
from .shared.casts import HALF, cast, widen
from .shared.derivatives import scaled, sum_to, widen_again, zeros
from .shared.op_def import Attrs, Decompose, OpDef, Trait, register
from .shared.window import accumulator


def row_type(q: TensorType) -> TensorType:
    """One number for each row of q, as wide as sums are."""
    return TensorType(accumulator(q.dtype), q.shape[:-1])


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_fitting(operands, attrs)
    q, _, v = operands[:3]
    return [q.with_shape((*q.shape[:-1], v.shape[-1])), row_type(q)]


def infer_grad(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if len(operands) not in (6, 7):
        raise OpError(f"expected the operands q, k, v, maybe a mask, log_sum, share and g, got {len(operands)}")
    *forward, log_sum, share, g = operands
    require_fitting(forward, attrs)
    q, k, v = forward[:3]
    row, result = row_type(q), q.with_shape((*q.shape[:-1], v.shape[-1]))
    for what, given, expected in (("log_sum", log_sum, row), ("share", share, row), ("g", g, result)):
        if given != expected:
            raise OpError(f"expected {what} to be {expected}, got {given}")
    return [q, k, v]


def _widened(inputs: Sequence[Array]) -> list[Array]:
    """Halves as f32."""
    return [x.astype(np.float32) if x.dtype in [t.numpy for t in HALF] else x for x in inputs]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis = axis_of(attrs, results[0])
    q, k, v, *mask = _widened(inputs)
    q, k, v = (np.moveaxis(x, axis, -2) for x in (q, k, v))
    k, v = (repeated_heads(x, q.shape[:-2]) for x in (k, v))
    scores = evaluate_scores(q, k, mask, attrs)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        most = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - most)
        total = np.sum(powers, axis=-1, keepdims=True)
        found = np.matmul(powers / total, v)
        log_sum = np.moveaxis(most + np.log(total), -2, axis)[..., 0]
    return [np.moveaxis(found, -2, axis).astype(results[0].dtype.numpy), log_sum]


def evaluate_grad(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis = axis_of(attrs, results[0])
    q, k, v, *mask, log_sum, share, g = _widened(inputs)
    q, k, v, g = (np.moveaxis(x, axis, -2) for x in (q, k, v, g))
    log_sum, share = (np.moveaxis(x[..., None], axis, -2) for x in (log_sum, share))
    fewer = k.shape[:-2]
    k, v = (repeated_heads(x, q.shape[:-2]) for x in (k, v))
    scores = evaluate_scores(q, k, mask, attrs)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(scores - log_sum)
        of_scores = weights * (np.matmul(g, v.swapaxes(-1, -2)) - share)
        of_scores = of_scores * q.dtype.type(number_of(attrs, "scale"))
        of_v = summed_heads(np.matmul(weights.swapaxes(-1, -2), g), fewer)
        of_k = summed_heads(np.matmul(of_scores.swapaxes(-1, -2), q), fewer)
        of_q = np.matmul(of_scores, k)
    found = (of_q, of_k, of_v)
    return [np.moveaxis(x, -2, axis).astype(r.dtype.numpy) for x, r in zip(found, results)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    q, k, v, *mask = (widen(b, x) for x in op.operands)
    axis = axis_of(op.attrs, q.type)
    heads = heads_of(q.type, axis)
    q, k, v = (build_heads(b, x, axis, heads) for x in (q, k, v))
    scores = build_scores(b, q, k, mask, op.attrs)
    last = (scores.type.rank - 1,)
    most = b.op("reduce_max", [scores], axes=last, keepdims=True)
    powers = b.op("exp", [b.op("sub", [scores, most])])
    total = b.op("reduce_sum", [powers], axes=last, keepdims=True)
    found = b.op("matmul", [b.op("div", [powers, total]), v], transpose_a=False, transpose_b=False)
    log_sum = build_back(b, b.op("add", [most, b.op("log", [total])]), axis, heads)
    result, rows = (r.type for r in op.results)
    return [
        cast(b, build_back(b, found, axis, heads), result.dtype),
        b.op("reshape", [log_sum], shape=rows.shape),
    ]


def decompose_grad(b: IRBuilder, op: Op) -> Sequence[Value]:
    operands = [widen(b, x) for x in op.operands]
    weights, of_scores = _of_scores(b, operands, op.attrs)
    q, k, g = operands[0], operands[1], operands[-1]
    axis = axis_of(op.attrs, q.type)
    heads, fewer = heads_of(q.type, axis), heads_of(k.type, axis)
    q, k, g = (build_heads(b, x, axis, heads) for x in (q, k, g))
    of_scores = scaled(b, of_scores, number_of(op.attrs, "scale"))
    of_q = b.op("matmul", [of_scores, k], transpose_a=False, transpose_b=False)
    of_k = b.op("matmul", [of_scores, q], transpose_a=True, transpose_b=False)
    of_v = b.op("matmul", [weights, g], transpose_a=True, transpose_b=False)
    found = (build_back(b, x, axis, n) for x, n in ((of_q, heads), (of_k, fewer), (of_v, fewer)))
    return [cast(b, x, r.type.dtype) for x, r in zip(found, op.results)]


def _of_scores(b: IRBuilder, operands: Sequence[Value], attrs: Attrs) -> tuple[Value, Value]:
    """The weights of the values again, and the gradient in what their softmax is of; both [heads..., queries, keys]."""
    q, k, v, *mask, log_sum, share, g = operands
    axis = axis_of(attrs, q.type)
    heads = heads_of(q.type, axis)
    column = (*q.type.shape[:-1], 1)
    log_sum, share = (b.op("reshape", [x], shape=column) for x in (log_sum, share))
    q, k, v, g, log_sum, share = (build_heads(b, x, axis, heads) for x in (q, k, v, g, log_sum, share))
    weights = b.op("exp", [b.op("sub", [build_scores(b, q, k, mask, attrs), log_sum])])
    of_weights = b.op("matmul", [g, v], transpose_a=False, transpose_b=True)
    return weights, b.op("mul", [weights, b.op("sub", [of_weights, share])])


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads q, k, v, the mask, and of each row the result and the log-sum-exp.

    With W the weights of the values and dW = g v^T, the gradient in a score is W (dW - share), where share is the sum of W dW
    over the row, which is that of g times the result; what arrives in the log-sum-exp takes from it. The gradient in a mask
    that is added is written out, for it has the scores' size itself: nothing is computed of it where no one asks.
    """
    result, log_sum = op.results
    g, g_log_sum = grads
    if g is None:
        g = zeros(b, result.type)
    product = b.op("mul", [widen_again(b, g, 1), widen_again(b, result, 2)])
    share = b.op("reduce_sum", [product], axes=(result.type.rank - 1,), keepdims=False)
    if g_log_sum is not None:
        share = b.op("sub", [share, g_log_sum])
    operands = [*op.operands, log_sum, share, g]
    found: list[Value | None] = [*b.multi("attention_grad", operands, **op.attrs).results]
    for mask in op.operands[3:]:
        if mask.type.dtype is DType.BOOL:
            found.append(None)
            continue
        _, of_scores = _of_scores(b, [widen(b, x) for x in operands], op.attrs)
        found.append(sum_to(b, of_scores, mask.type))
    return found


def flops(op: Op) -> int:
    """Two products, and a softmax of the scores."""
    return seen_scores(op) * (2 * op.operands[0].type.shape[-1] + 2 * op.operands[2].type.shape[-1] + 5)


def flops_grad(op: Op) -> int:
    """Three products of q's columns, two of v's, and the weights."""
    return seen_scores(op) * (6 * op.operands[0].type.shape[-1] + 4 * op.operands[2].type.shape[-1] + 7)


def in_place(op: Op) -> Sequence[int]:
    """A row of the queries is needed for the same row of the result alone."""
    return (0,) if op.operands[0].type == op.results[0].type else ()


def in_place_grad(op: Op) -> Sequence[int]:
    """Rows of the queries and of g are needed for the gradients in all keys first, then for the same row's alone."""
    return tuple(n for n in (0, len(op.operands) - 1) if op.operands[n].type == op.results[0].type)


register(
    OpDef(
        name="attention_training",
        doc="attention, and the logarithm of each row's sum of exponentials, of which its gradient makes the weights again.\n\n"
        "Operands and attributes as of attention. Results: that of attention, and log(sum(exp(scores))), f32 for half\n"
        "precision, of q's shape without columns. Both are nan for a row that sees no key.",
        spec="https://onnx.ai/onnx/operators/onnx__Attention.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=in_place,
        view=None,
        slices=None,
        flops=flops,
        lower=Decompose(decompose),
        library=(ATTENTION_CPU, ATTENTION_TRAINING_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)

register(
    OpDef(
        name="attention_grad",
        doc="The gradients of attention in q, k and v.\n\n"
        "Operands q, k, v and maybe a mask as of attention; log_sum, its rows' log(sum(exp(scores))); share, for each row the\n"
        "sum of g times the result; and g, the gradient in the result. Results: the gradients in q, k and v, of their types;\n"
        "where several heads of q read one of k, the sum over them. A row that sees no key makes those nan that it adds to.",
        spec=None,
        infer=infer_grad,
        evaluate=evaluate_grad,
        gradient=None,
        in_place=in_place_grad,
        view=None,
        slices=None,
        flops=flops_grad,
        lower=Decompose(decompose_grad),
        library=(ATTENTION_GRAD_CPU, ATTENTION_GRAD_CUDA),
        traits=frozenset({Trait.REDUCTION}),
    )
)

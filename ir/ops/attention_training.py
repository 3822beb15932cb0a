# SPDX-License-Identifier: Apache-2.0
"""attention_training and attention_grad: attention whose gradient keeps no scores (Dao et al., FlashAttention, 2022,
algorithms 1 and 4): one number for each row stands for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .library.cpu_attention import ATTENTION_CPU, ATTENTION_GRAD_CPU, ATTENTION_MASK_GRAD_CPU
from .library.cuda_attention import ATTENTION_GRAD_CUDA, ATTENTION_TRAINING_CUDA
from .shared.attention_parts import (
    build_back,
    build_blind,
    build_dropped,
    build_heads,
    build_scores,
    evaluate_scores,
    heads_of,
    is_zero_blind,
    kept_weights,
    parts_of,
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
    if len(operands) not in (6, 7, 8):
        raise OpError(
            f"expected the operands q, k, v, maybe a mask and a seed, log_sum, share and g, got {len(operands)}"
        )
    *forward, log_sum, share, g = operands
    require_fitting(forward, attrs)
    q, k, v = forward[:3]
    row, result = row_type(q), q.with_shape((*q.shape[:-1], v.shape[-1]))
    for what, given, expected in (("log_sum", log_sum, row), ("share", share, row), ("g", g, result)):
        if given != expected:
            raise OpError(f"expected {what} to be {expected}, got {given}")
    return [q, k, v]


def infer_mask_grad(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    infer_grad(operands, attrs)
    mask = parts_of(operands[:-3]).mask
    if mask is None or not mask.dtype.is_float:
        raise OpError(f"expected a mask of floats, got {mask}")
    return [mask]


def _widened(inputs: Sequence[Array]) -> list[Array]:
    """Halves as f32."""
    return [x.astype(np.float32) if x.dtype in [t.numpy for t in HALF] else x for x in inputs]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis = axis_of(attrs, results[0])
    given = parts_of(_widened(inputs))
    q, k, v = (np.moveaxis(x, axis, -2) for x in (given.q, given.k, given.v))
    k, v = (repeated_heads(x, q.shape[:-2]) for x in (k, v))
    scores, _ = evaluate_scores(q, k, given.mask, attrs)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        most = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - most)
        total = np.sum(powers, axis=-1, keepdims=True)
        weights, log_sum = powers / total, most + np.log(total)
        if is_zero_blind(attrs):
            weights = np.where(most == -np.inf, weights.dtype.type(0), weights)
            log_sum = np.where(most == -np.inf, log_sum.dtype.type(np.inf), log_sum)
        kept = kept_weights(given.seed, attrs, weights)
        found = np.matmul(weights if kept is None else weights * kept, v)
        log_sum = np.moveaxis(log_sum, -2, axis)[..., 0]
    return [np.moveaxis(found, -2, axis).astype(results[0].dtype.numpy), log_sum]


@dataclass(frozen=True)
class _Weighted:
    """What gradients are made of; heads of k and v are repeated, and positions before columns."""

    q: Array
    k: Array
    g: Array
    weights: Array
    """Those of the values, as far as dropout leaves them."""
    of_scores: Array
    """The gradient in the scores, before they are capped and scaled."""
    of_masked: Array
    """That after they are capped, which is that in the mask."""


def _evaluate_weighted(inputs: Sequence[Array], attrs: Attrs, axis: int) -> _Weighted:
    *forward, log_sum, share, g = _widened(inputs)
    given = parts_of(forward)
    q, k, v, g = (np.moveaxis(x, axis, -2) for x in (given.q, given.k, given.v, g))
    log_sum, share = (np.moveaxis(x[..., None], axis, -2) for x in (log_sum, share))
    k, v = (repeated_heads(x, q.shape[:-2]) for x in (k, v))
    scores, slope = evaluate_scores(q, k, given.mask, attrs)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(scores - log_sum)
        of_weights, kept = np.matmul(g, v.swapaxes(-1, -2)), kept_weights(given.seed, attrs, weights)
        if kept is not None:
            of_weights = of_weights * kept
        of_masked = weights * (of_weights - share)
        of_scores = of_masked if slope is None else of_masked * slope
        return _Weighted(q, k, g, weights if kept is None else weights * kept, of_scores, of_masked)


def evaluate_grad(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    axis = axis_of(attrs, results[0])
    fewer = heads_of(results[1], axis)
    x = _evaluate_weighted(inputs, attrs, axis)
    with np.errstate(invalid="ignore", over="ignore"):
        of_scores = x.of_scores * x.q.dtype.type(number_of(attrs, "scale"))
        of_v = summed_heads(np.matmul(x.weights.swapaxes(-1, -2), x.g), fewer)
        of_k = summed_heads(np.matmul(of_scores.swapaxes(-1, -2), x.q), fewer)
        of_q = np.matmul(of_scores, x.k)
    found = (of_q, of_k, of_v)
    return [np.moveaxis(x, -2, axis).astype(r.dtype.numpy) for x, r in zip(found, results)]


def evaluate_mask_grad(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (mask,) = results
    found = _evaluate_weighted(inputs, attrs, axis_of(attrs, mask.with_shape(inputs[0].shape))).of_masked
    shape = (1,) * (found.ndim - mask.rank) + mask.shape
    axes = tuple(d for d, (n, m) in enumerate(zip(shape, found.shape)) if n != m)
    return [found.sum(axis=axes, keepdims=True).reshape(mask.shape).astype(mask.dtype.numpy)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    given = parts_of([widen(b, x) for x in op.operands])
    axis = axis_of(op.attrs, given.q.type)
    heads = heads_of(given.q.type, axis)
    q, k, v = (build_heads(b, x, axis, heads) for x in (given.q, given.k, given.v))
    scores, _ = build_scores(b, q, k, given.mask, op.attrs)
    last = (scores.type.rank - 1,)
    most = b.op("reduce_max", [scores], axes=last, keepdims=True)
    powers = b.op("exp", [b.op("sub", [scores, most])])
    total = b.op("reduce_sum", [powers], axes=last, keepdims=True)
    weights, blind = b.op("div", [powers, total]), build_blind(b, most) if is_zero_blind(op.attrs) else None
    if blind is not None:
        weights = b.op("select", [blind, b.scalar(0, scores.type.dtype), weights])
    weights = build_dropped(b, weights, given.seed, op.attrs)
    found = b.op("matmul", [weights, v], transpose_a=False, transpose_b=False)
    log_sum = b.op("add", [most, b.op("log", [total])])
    if blind is not None:
        log_sum = b.op("select", [blind, b.scalar(np.inf, scores.type.dtype), log_sum])
    log_sum = build_back(b, log_sum, axis, heads)
    result, rows = (r.type for r in op.results)
    return [
        cast(b, build_back(b, found, axis, heads), result.dtype),
        b.op("reshape", [log_sum], shape=rows.shape),
    ]


def decompose_grad(b: IRBuilder, op: Op) -> Sequence[Value]:
    operands = [widen(b, x) for x in op.operands]
    weights, of_masked, slope = _of_masked(b, operands, op.attrs)
    of_scores = of_masked if slope is None else b.op("mul", [of_masked, slope])
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


def decompose_mask_grad(b: IRBuilder, op: Op) -> Sequence[Value]:
    _, of_masked, _ = _of_masked(b, [widen(b, x) for x in op.operands], op.attrs)
    (mask,) = op.results
    return [cast(b, sum_to(b, of_masked, mask.type.with_dtype(of_masked.type.dtype)), mask.type.dtype)]


def _of_masked(b: IRBuilder, operands: Sequence[Value], attrs: Attrs) -> tuple[Value, Value, Value | None]:
    """The weights of the values again, as far as dropout leaves them, and the gradient in what their softmax is of, both
    [heads..., queries, keys]; and what the latter is times before the cap, if there is one."""
    *forward, log_sum, share, g = operands
    given = parts_of(forward)
    axis = axis_of(attrs, given.q.type)
    heads = heads_of(given.q.type, axis)
    column = (*given.q.type.shape[:-1], 1)
    log_sum, share = (b.op("reshape", [x], shape=column) for x in (log_sum, share))
    parts = (given.q, given.k, given.v, g, log_sum, share)
    q, k, v, g, log_sum, share = (build_heads(b, x, axis, heads) for x in parts)
    scores, slope = build_scores(b, q, k, given.mask, attrs)
    weights = b.op("exp", [b.op("sub", [scores, log_sum])])
    of_weights = b.op("matmul", [g, v], transpose_a=False, transpose_b=True)
    of_weights = build_dropped(b, of_weights, given.seed, attrs)
    of_masked = b.op("mul", [weights, b.op("sub", [of_weights, share])])
    return build_dropped(b, weights, given.seed, attrs), of_masked, slope


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads q, k, v, the mask, and of each row the result and the log-sum-exp.

    With W the weights of the values and dW = g v^T, the gradient in a score is W (dW - share), where share is the sum of W dW
    over the row, which is that of g times the result; what arrives in the log-sum-exp takes from it. The gradient in a mask
    that is added is an op of its own: nothing is computed of it where no one asks.
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
    for more in op.operands[3:]:
        is_added = more.type.dtype.is_float
        found.append(b.op("attention_mask_grad", operands, **op.attrs) if is_added else None)
    return found


def flops(op: Op) -> int:
    """Two products, and a softmax of the scores."""
    return seen_scores(op) * (2 * op.operands[0].type.shape[-1] + 2 * op.operands[2].type.shape[-1] + 5)


def flops_grad(op: Op) -> int:
    """Three products of q's columns, two of v's, and the weights."""
    return seen_scores(op) * (6 * op.operands[0].type.shape[-1] + 4 * op.operands[2].type.shape[-1] + 7)


def flops_mask_grad(op: Op) -> int:
    """Two products, the weights, and sums."""
    return seen_scores(op) * (2 * op.operands[0].type.shape[-1] + 2 * op.operands[2].type.shape[-1] + 7)


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
        "Operands and attributes as of attention, and for a dropout of the weights a seed, i64[], with `ratio` and `stream` as of\n"
        "dropout, whose elements [heads..., queries, keys] it draws. Results: that of attention, and log(sum(exp(scores))), f32 for half\n"
        "precision, of q's shape without columns. Both are nan for a row that sees no key; with\n"
        "`blind = zero`, it is 0, and log(sum(exp(scores))) inf, so that it adds nothing to any gradient.",
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
        "Operands q, k, v, maybe a mask and a seed as of attention_training; log_sum, its rows' log(sum(exp(scores))); share, for each row the\n"
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

register(
    OpDef(
        name="attention_mask_grad",
        doc="The gradient of attention in a mask of floats: that in the scores, summed where the mask is spread out.\n\n"
        "Operands and attributes as of attention_grad, with a mask of floats, whose type the result has.",
        spec=None,
        infer=infer_mask_grad,
        evaluate=evaluate_mask_grad,
        gradient=None,
        in_place=None,
        view=None,
        slices=None,
        flops=flops_mask_grad,
        lower=Decompose(decompose_mask_grad),
        library=(ATTENTION_MASK_GRAD_CPU,),
        traits=frozenset({Trait.REDUCTION}),
    )
)

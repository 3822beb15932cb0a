# SPDX-License-Identifier: Apache-2.0
"""lrn and channel_square_sum: normalization of each element by its neighbours in the channels next to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.casts import cast, widen
from .shared.common import float_attr
from .shared.derivatives import again, widen_again
from .shared.op_def import Attrs, Builder, Compute, Decompose, Expr, OpDef, Tensor, Trait, register
from .shared.window import accumulator, integer, require_count


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    for name in ("alpha", "beta", "bias"):
        float_attr(attrs, name)
    return [_operand(operands, attrs)]


def _operand(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_count(operands, 1)
    (x,) = operands
    if x.rank < 2 or not x.dtype.is_float:
        raise OpError(f"expected floats [N, C, ...], got {x}")
    integer(attrs, "size", 1)
    return x


def sum_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    x = _operand(operands, attrs)
    return [x.with_dtype(accumulator(x.dtype))]


def _reach(size: int, channels: int) -> tuple[int, int]:
    """The channels before and after an element's that its window may hold, if there are so many."""
    most = max(channels - 1, 0)
    return min((size - 1) // 2, most), min(size // 2, most)


def sum_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (x,), (result,) = inputs, results
    before, after = _reach(integer(attrs, "size", 1), x.shape[1])
    square = np.square(x.astype(result.dtype.numpy))
    total = np.zeros_like(square)
    channels = x.shape[1]
    for shift in range(-before, after + 1):
        low, high = max(0, -shift), min(channels, channels - shift)
        if low < high:
            total[:, low:high] += square[:, low + shift : high + shift]
    return [total]


def sum_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    dtype, channels = op.result.type.dtype, op.result.type.shape[1]
    before, after = _reach(integer(op.attrs, "size", 1), channels)

    def body(n: Expr, c: Expr, *rest: Expr) -> Expr:
        def term(k: Expr) -> Expr:
            at = c + k - before
            x = b.cast(inputs[0][(n, at, *rest)], dtype)
            return b.select(b.logical_and(at >= 0, at < channels), x * x, b.const(0, dtype))

        return b.reduce("sum", [before + 1 + after], term)

    return [b.compute(op.result.type, body)]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    wide = results[0].with_dtype(accumulator(results[0].dtype))
    (total,) = sum_evaluate(inputs, attrs, [wide])
    alpha, beta, bias = (float_attr(attrs, name) for name in ("alpha", "beta", "bias"))
    with np.errstate(all="ignore"):
        base = bias + total * (alpha / integer(attrs, "size", 1))
        return [(inputs[0].astype(wide.dtype.numpy) / base**beta).astype(results[0].dtype.numpy)]


def sum_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x: twice x times the sum of the gradients of all windows that an element is in."""
    (g,) = grads
    if g is None:
        return [None]
    x = op.operands[0]
    total = _reverse_window_sum(b, g, integer(op.attrs, "size", 1))
    return [cast(b, b.op("mul", [b.op("mul", [widen(b, x), b.scalar(2, g.type.dtype)]), total]), x.type.dtype)]


def _reverse_window_sum(b: IRBuilder, g: Value, size: int) -> Value:
    """The sum of `g` over the channels whose windows hold an element's channel."""
    n, channels, *rest = g.type.shape
    image = b.op("reshape", [g], shape=(n, 1, channels, math.prod(rest)))
    before, after = _reach(size, channels)
    window = {"kernel": (before + 1 + after, 1), "strides": (1, 1), "dilations": (1, 1)}
    total = b.op("sum_pool", [image], **window, pads=(after, 0, before, 0))
    return b.op("reshape", [total], shape=g.type.shape)


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Reads x and, for a quotient, the result. With s = alpha / size and the sum W over the channels in whose windows
    an element is: dx = g / base^beta - 2 s beta x W(g y / base), where base = bias + s channel_square_sum(x)."""
    (g,) = grads
    if g is None:
        return [None]
    x, y, size = op.operands[0], op.result, integer(op.attrs, "size", 1)
    alpha, beta, bias = (float_attr(op.attrs, name) for name in ("alpha", "beta", "bias"))
    total = b.op("channel_square_sum", [x], size=size)
    dtype = total.type.dtype

    def base(time: int) -> Value:
        grown = again(b, "mul", [total, b.scalar(alpha / size, dtype)], time)
        return again(b, "add", [grown, b.scalar(bias, dtype)], time)

    share = b.op("div", [b.op("mul", [widen_again(b, g, 1), widen(b, y)]), base(1)])
    spread = b.op("mul", [widen(b, x), _reverse_window_sum(b, share, size)])
    power = b.op("pow", [base(2), b.scalar(-beta, dtype)])
    own = b.op("mul", [widen_again(b, g, 2), power])
    found = b.op("sub", [own, b.op("mul", [spread, b.scalar(2 * alpha / size * beta, dtype)])])
    return [cast(b, found, x.type.dtype)]


def decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x, size = op.operands[0], integer(op.attrs, "size", 1)
    alpha, beta, bias = (float_attr(op.attrs, name) for name in ("alpha", "beta", "bias"))
    total = b.op("channel_square_sum", [x], size=size)
    dtype = total.type.dtype
    base = b.op("add", [b.op("mul", [total, b.scalar(alpha / size, dtype)]), b.scalar(bias, dtype)])
    if beta == 0.75:  # the usual exponent; roots stay in vectors where a power is a call for each element
        root = b.op("sqrt", [base])
        power = b.op("mul", [root, b.op("sqrt", [root])])
    else:
        power = b.op("pow", [base, b.scalar(beta, dtype)])
    return [cast(b, b.op("div", [widen(b, x), power]), op.result.type.dtype)]


register(
    OpDef(
        name="channel_square_sum",
        doc="Sum of the squares in a window of channels around each element of x [N, C, ...] (float).\n\n"
        "Attribute `size`: channels of the window, (size - 1) // 2 before the element's and size // 2 after it; those\n"
        "that do not exist count as zero. f16 and bf16 give an f32 result.",
        spec=None,
        infer=sum_infer,
        evaluate=sum_evaluate,
        gradient=sum_gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: 2 * integer(op.attrs, "size", 1) * op.result.type.elements,
        lower=Compute(sum_lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

register(
    OpDef(
        name="lrn",
        doc="Local response normalization of x [N, C, ...]: x / (bias + alpha / size * channel_square_sum(x)) ^ beta.\n\n"
        "Attributes `size` (as in channel_square_sum), `alpha`, `beta`, `bias`. Half precision is computed in f32.",
        spec="https://onnx.ai/onnx/operators/onnx__LRN.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: (2 * integer(op.attrs, "size", 1) + 10) * op.result.type.elements,
        lower=Decompose(decompose),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""max_pool, max_pool_indices, sum_pool and avg_pool: windows slid over the spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.casts import cast, widen
from .shared.derivatives import spread
from .shared.first_largest import TYPES
from .shared.first_of_window import first_largest, lower_first_largest
from .shared.op_def import Attrs, Builder, Compute, Decompose, Expr, OpDef, Tensor, Trait, flat, register
from .shared.window import (
    Window,
    accumulator,
    flag,
    int_tuple,
    lowest,
    padded,
    positions,
    read,
    require_count,
    require_numeric,
    source,
    strided,
    window,
)

_NONE = 2**63 - 1


def _pooled(x: TensorType, attrs: Attrs) -> tuple[int, ...]:
    if x.rank < 3:
        raise OpError(f"expected x [N, C, spatial...], got {x}")
    return (*x.shape[:2], *window(attrs, None, x.rank - 2).output(x.shape[2:]))


def _flops(op: Op) -> int:
    return op.result.type.elements * math.prod(window(op.attrs, None, op.result.type.rank - 2).kernel)


_WINDOW = ("kernel", "strides", "pads", "dilations")
_WINDOW_DOC = (
    "Attributes: `kernel`, `strides`, `dilations`: one integer per spatial axis; `pads`: padding before each spatial\n"
    "axis, then after each. "
)


def max_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    require_numeric(operands)
    return [operands[0].with_shape(_pooled(operands[0], attrs))]


def max_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (result,) = results
    view = window(attrs, None, result.rank - 2)
    x = padded(inputs[0], view, lowest(result.dtype))
    y = np.full(result.shape, lowest(result.dtype), dtype=x.dtype)
    for position in positions(view.kernel):
        np.maximum(y, strided(x, view, position, result.shape[2:]), out=y)
    return [y]


def max_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    view = window(op.attrs, None, x.rank - 2)

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            return read(b, inputs[0], x.shape[2:], view, (n, c), at, taps, b.const(lowest(x.dtype), x.dtype))

        return b.reduce("max", view.kernel, term)

    return [b.compute(op.result.type, body)]


def max_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """The gradient goes to the first of a window's largest elements. It reads the operand to find a byte for each window, which
    only the next op needs."""
    (g,) = grads
    x = op.operands[0]
    if g is None or not x.type.dtype.is_float:
        return [None]
    attrs = {name: op.attrs[name] for name in _WINDOW}
    taps = b.op("max_pool_taps", [x], **attrs)
    return [cast(b, b.op("max_pool_grad", [taps, g], **attrs, shape=x.type.shape[2:]), x.type.dtype)]


register(
    OpDef(
        name="max_pool",
        doc="Largest element of each window of x [N, C, spatial...].\n\n" + _WINDOW_DOC + "Padding never wins.",
        spec="https://onnx.ai/onnx/operators/onnx__MaxPool.html",
        infer=max_infer,
        evaluate=max_evaluate,
        gradient=max_gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=_flops,
        lower=Compute(max_lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)


def indices_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    if operands[0].dtype not in TYPES:
        raise OpError(f"expected floats or integers of up to 32 bits, got {operands[0]}")
    return [TensorType(DType.I64, _pooled(operands[0], attrs))]


def indices_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (x,) = inputs
    view, shape = window(attrs, None, x.ndim - 2), results[0].shape
    taps = first_largest(x, view, shape, -1)
    flat = padded(np.arange(x.size, dtype=np.int64).reshape(x.shape), view, _NONE)
    found = np.full(shape, _NONE, dtype=np.int64)
    for tap, position in enumerate(positions(view.kernel)):
        found = np.where(taps == tap, strided(flat, view, position, shape[2:]), found)
    return [found]


def indices_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    view = window(op.attrs, None, x.rank - 2)
    find = lower_first_largest(b, op, inputs[0], view)
    none = b.const(-1, DType.I64)

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        tap = find((n, c, *at), none)
        flat, rest, steps = b.cast(n, DType.I64), tap, []
        for extent in reversed(view.kernel):
            steps.append(b.floormod(rest, extent))
            rest = b.floordiv(rest, extent)
        index, _ = source(b, x.shape[2:], view, [b.cast(i, DType.I64) for i in at], steps[::-1])
        for i, extent in zip((b.cast(c, DType.I64), *index), x.shape[1:]):
            flat = flat * b.const(extent, DType.I64) + i
        return b.select(b.equal(tap, none), b.const(_NONE, DType.I64), flat)

    return [b.compute(op.result.type, body)]


register(
    OpDef(
        name="max_pool_indices",
        doc="Where max_pool found its values: row-major position in the whole of x [N, C, spatial...], as i64.\n\n"
        "Operand: x, that of max_pool. Of equal elements the first counts (of f64 see max_pool_taps); a window without any\n"
        "(all padding, or not a number) gives the largest i64.\n" + _WINDOW_DOC,
        spec="https://onnx.ai/onnx/operators/onnx__MaxPool.html",
        infer=indices_infer,
        evaluate=indices_evaluate,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=_flops,
        lower=Compute(indices_lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)


def sum_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    require_numeric(operands)
    return [TensorType(accumulator(operands[0].dtype), _pooled(operands[0], attrs))]


def sum_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (result,) = results
    view = window(attrs, None, result.rank - 2)
    x = padded(inputs[0].astype(result.dtype.numpy, copy=False), view, 0)
    y = np.zeros(result.shape, dtype=x.dtype)
    for position in positions(view.kernel):
        y += strided(x, view, position, result.shape[2:])
    return [y]


def sum_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    view = window(op.attrs, None, x.rank - 2)

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            value = read(b, inputs[0], x.shape[2:], view, (n, c), at, taps, b.const(0, x.dtype))
            return b.cast(value, op.result.type.dtype)

        return b.reduce("sum", view.kernel, term)

    return [b.compute(op.result.type, body)]


def sum_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    x = op.operands[0].type
    return [None if g is None or not x.dtype.is_float else _sum_gradient(b, op, g)]


def _sum_gradient(b: IRBuilder, op: Op, g: Value) -> Value:
    """The sum, for each element of the operand, of `g` in all windows that cover it."""
    x = op.operands[0].type
    view = window(op.attrs, None, x.rank - 2)
    if view.kernel == x.shape[2:] and not any(view.low + view.high) and set(view.dilations) == {1}:
        return cast(b, spread(b, g, x, range(2, x.rank)), x.dtype)  # One window over everything.
    attrs = {name: op.attrs[name] for name in _WINDOW}
    return cast(b, b.op("sum_pool_grad", [g], **attrs, shape=x.shape[2:]), x.dtype)


register(
    OpDef(
        name="sum_pool",
        doc="Sum of each window of x [N, C, spatial...].\n\n"
        + _WINDOW_DOC
        + "Padding is zero. f16 and bf16 give an f32 result.",
        spec=None,
        infer=sum_infer,
        evaluate=sum_evaluate,
        gradient=sum_gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=_flops,
        lower=Compute(sum_lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)


def window_counts(spatial: Sequence[int], view: Window, counted: Sequence[tuple[int, int]]) -> Array:
    """How many elements of each window count [out...]: those inside the input grown by `counted` per axis, at least 1."""
    total = np.ones((), dtype=np.int64)
    for axis, (size, out) in enumerate(zip(spatial, view.output(spatial))):
        taps = np.arange(view.kernel[axis]) * view.dilations[axis] - view.low[axis]
        at = np.arange(out)[:, None] * view.strides[axis] + taps
        before, after = counted[axis]
        count = ((at >= -before) & (at < size + after)).sum(axis=1)
        total = total[..., None] * count
    return np.maximum(total, 1)


def avg_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    require_numeric(operands)
    (x,) = operands
    shape = _pooled(x, attrs)
    if not x.dtype.is_float:
        raise OpError(f"expected a float operand, got {x}")
    flag(attrs, "count_include_pad")
    int_tuple(attrs, "extra", x.rank - 2, 0)
    return [x.with_shape(shape)]


def _divisors(x: TensorType, attrs: Attrs) -> Array:
    view = window(attrs, None, x.rank - 2)
    extra = int_tuple(attrs, "extra", view.rank, 0)
    padding = [(low, max(high - e, 0)) for low, high, e in zip(view.low, view.high, extra)]
    counted = padding if flag(attrs, "count_include_pad") else [(0, 0)] * view.rank
    counts = window_counts(x.shape[2:], view, counted)
    return counts.reshape(-1)[:1] if counts.size and (counts == counts.flat[0]).all() else counts


def avg_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (result,) = results
    x = TensorType(result.dtype, inputs[0].shape)
    total = sum_evaluate(inputs, attrs, [result.with_dtype(accumulator(result.dtype))])[0]
    return [(total / _divisors(x, attrs).astype(total.dtype)).astype(result.dtype.numpy)]


def avg_decompose(b: IRBuilder, op: Op) -> Sequence[Value]:
    x = op.operands[0]
    total = b.op("sum_pool", [x], **{name: op.attrs[name] for name in _WINDOW})
    divisors = b.constant(_divisors(x.type, op.attrs).astype(total.type.dtype.numpy))
    mean = b.op("div", [total, divisors])
    return [mean if mean.type == op.result.type else b.op("cast", [mean], to=op.result.type.dtype)]


def avg_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None]
    divisors = b.constant(_divisors(op.operands[0].type, op.attrs).astype(accumulator(g.type.dtype).numpy))
    return [_sum_gradient(b, op, b.op("div", [widen(b, g), divisors]))]


register(
    OpDef(
        name="avg_pool",
        doc="Mean of each window of x [N, C, spatial...] (float).\n\n"
        + _WINDOW_DOC
        + "`extra`: how much of the padding\nafter each axis only rounds the number of windows up and never counts. "
        "`count_include_pad`: whether the rest\nof the padding counts as zeros.",
        spec="https://onnx.ai/onnx/operators/onnx__AveragePool.html",
        infer=avg_infer,
        evaluate=avg_evaluate,
        gradient=avg_gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=lambda op: _flops(op) + op.result.type.elements,
        lower=Decompose(avg_decompose),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

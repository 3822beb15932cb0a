# SPDX-License-Identifier: Apache-2.0
"""reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_mean: combine the elements along some axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..type_inference import InferFn
from ..types import DType, TensorType
from .shared.axes import axes_of, flag_of, only
from .shared.casts import HALF, cast, widen
from .shared.derivatives import held_distance, keep_where, scaled, spread
from .shared.op_def import Attrs, Builder, Compute, Decompose, Expr, GradientFn, OpDef, Tensor, Trait, register


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """`shape` with `axes` of extent 1, or left out."""
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def lowest(dtype: DType) -> Any:
    """The neutral element of max: minus infinity, the least integer, or false."""
    if dtype.is_float:
        return -math.inf
    return False if dtype is DType.BOOL else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> Any:
    """The neutral element of min: infinity, the greatest integer, or true."""
    if dtype.is_float:
        return math.inf
    return True if dtype is DType.BOOL else int(np.iinfo(dtype.numpy).max)


def infer_with(accepts: Callable[[DType], bool], expected: str) -> InferFn:
    def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
        source = only(operands)
        if not accepts(source.dtype):
            raise OpError(f"expected an operand of {expected}, got {source}")
        return [source.with_shape(reduced_shape(source.shape, axes_of(attrs, source), flag_of(attrs, "keepdims")))]

    return infer


def evaluate_with(
    combine: Callable[..., Any], neutral: Callable[[DType], Any] | None
) -> Callable[..., Sequence[Array]]:
    def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        dtype = results[0].dtype
        options = {"dtype": dtype.numpy} if neutral is None else {"initial": dtype.numpy.type(neutral(dtype))}
        found = combine(inputs[0], axis=attrs["axes"], keepdims=attrs["keepdims"], **options)
        return [np.asarray(found, dtype=dtype.numpy)]

    return evaluate


def lower_with(kind: str) -> Compute:
    def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        source = op.operands[0].type
        axes = axes_of(op.attrs, source)
        keepdims = op.attrs["keepdims"]
        how = {"max": "any", "min": "all"}[kind] if source.dtype is DType.BOOL else kind

        def body(*index: Expr) -> Expr:
            kept = iter([i for d, i in enumerate(index) if d not in axes] if keepdims else index)
            outer = {d: next(kept) for d in range(source.rank) if d not in axes}

            def element(*inner: Expr) -> Expr:
                position = {**outer, **dict(zip(axes, inner))}
                return inputs[0][tuple(position[d] for d in range(source.rank))]

            extents = [source.shape[a] for a in axes]
            if all(extent == 1 for extent in extents):
                return element(*[0] * len(axes))  # Not 0 + x, which is not -0 for -0.
            return b.reduce(how, extents, element)

        return [b.compute(op.result.type, body)]

    return Compute(lower)


def decompose_mean(b: IRBuilder, op: Op) -> Sequence[Value]:
    axes = op.attrs["axes"]
    assert isinstance(axes, tuple)
    return [mean(b, op.operands[0], [a for a in axes if isinstance(a, int)], bool(op.attrs["keepdims"]))]


def reduce(b: IRBuilder, kind: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """`x` reduced over `axes` by `kind` (sum, prod, max, min) in its own element type; over no axes, `x` itself."""
    if not axes:
        return x
    wide = widen(b, x) if kind in ("sum", "prod") or x.type.dtype is DType.BF16 else x
    found = b.op(f"reduce_{kind}", [wide], axes=tuple(sorted(axes)), keepdims=keepdims)
    return cast(b, found, x.type.dtype)


def mean(b: IRBuilder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """The mean over `axes` in `x`'s element type. Over an empty range it is nan; integers: exact, then truncated."""
    count = math.prod(x.type.shape[a] for a in axes)
    if not axes:
        return x

    def total(part: Value) -> Value:
        return b.op("reduce_sum", [part], axes=tuple(sorted(axes)), keepdims=keepdims)

    dtype = x.type.dtype
    if dtype.is_integer and dtype.itemsize == 8:
        return _mean_of_64_bits(b, x, count, total)
    # No tensor has 2^31 elements of 32 bits and a sum beyond 63 bits.
    found = total(cast(b, x, DType.I64) if dtype.is_integer else widen(b, x))
    return cast(b, b.op("div", [found, b.scalar(count, found.type.dtype)]), dtype)


def _mean_of_64_bits(b: IRBuilder, x: Value, count: int, total: Callable[[Value], Value]) -> Value:
    """The mean of integers whose sum may have more than 64 bits.

    With x = q n + r for each of the n elements, the mean is sum q + (sum r) / n, where |sum r| < n^2 and both parts
    divide with truncation. That is off by one where the two have different signs: there the rest goes the other way.
    """
    dtype = x.type.dtype
    n, zero, one = b.scalar(count, dtype), b.scalar(0, dtype), b.scalar(1, dtype)
    rests = total(b.op("fmod", [x, n]))
    found = b.op("add", [total(b.op("div", [x, n])), b.op("div", [rests, n])])
    if not dtype.is_signed:
        return found
    rest = b.op("fmod", [rests, n])
    above = b.op("logical_and", [b.op("greater", [found, zero]), b.op("less", [rest, zero])])
    below = b.op("logical_and", [b.op("less", [found, zero]), b.op("greater", [rest, zero])])
    lowered = b.op("select", [above, b.op("sub", [found, one]), found])
    return b.op("select", [below, b.op("add", [found, one]), lowered])


def _sums(x: Array, axes: Any, keepdims: Any) -> Array:
    """Sums of integers as Python's integers, which do not wrap."""

    def total(part: Array) -> Array:
        return np.asarray(np.sum(part, axis=axes, keepdims=keepdims)).astype(object)

    if x.itemsize < 8:
        return total(x.astype(np.int64))
    # Halves of the elements add up in 64 bits.
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(np.int64)
    return total((x >> x.dtype.type(32)).astype(np.int64)) * 2**32 + total(low)


def evaluate_mean(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (x,) = inputs
    dtype = results[0].dtype
    axes: Any = attrs["axes"]
    keepdims: Any = attrs["keepdims"]
    count = math.prod(x.shape[a] for a in axes)
    if not dtype.is_float:
        sums = _sums(x, axes, keepdims)
        means = [abs(int(s)) // count * (1 if s >= 0 else -1) for s in sums.flat]
        return [np.array(means, dtype=dtype.numpy).reshape(results[0].shape)]
    wide: np.dtype[Any] = np.dtype(np.float32) if dtype in HALF else x.dtype
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.sum(x, axis=axes, keepdims=keepdims, dtype=wide) / wide.type(count)
    return [np.asarray(found, dtype=dtype.numpy)]


Slope = Callable[[IRBuilder, Op, Value, tuple[int, ...]], Value]
"""The gradient in the operand from the one in the result, already repeated along the reduced axes."""


def _rule(slope: Slope) -> GradientFn:
    def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        (g,) = grads
        source = op.operands[0].type
        if g is None or not source.dtype.is_float:
            return [None]
        axes = axes_of(op.attrs, source)
        return [slope(b, op, spread(b, g, source, axes), axes)]

    return gradient


def _extremum_slope(b: IRBuilder, op: Op, g: Value, axes: tuple[int, ...]) -> Value:
    """Equal parts to all elements that are the extremum, by their distances from the result."""
    x = op.operands[0]
    distance = held_distance(b, x, spread(b, op.result, x.type, axes))
    extreme = b.op(op.name, [distance], axes=axes, keepdims=True)
    hit = b.op("equal", [distance, extreme])
    ones = keep_where(b, hit, b.scalar(1, DType.F32))
    count = cast(b, b.op("reduce_sum", [ones], axes=axes, keepdims=True), x.type.dtype)
    return keep_where(b, hit, b.op("div", [g, count]))


def _product_slope(b: IRBuilder, op: Op, g: Value, axes: tuple[int, ...]) -> Value:
    """The product of the other elements, which must not divide by an element that is 0."""
    x, dtype = op.operands[0], op.operands[0].type.dtype
    zero, one = b.scalar(0, dtype), b.scalar(1, dtype)
    is_zero = b.op("equal", [x, zero])
    safe = b.op("select", [is_zero, one, x])
    product = b.op("reduce_prod", [safe], axes=axes, keepdims=True)
    count = b.op("reduce_sum", [b.op("select", [is_zero, one, zero])], axes=axes, keepdims=True)
    without = b.op("select", [b.op("equal", [count, zero]), b.op("div", [product, safe]), zero])
    only = b.op("logical_and", [is_zero, b.op("equal", [count, one])])
    return b.op("mul", [g, b.op("select", [only, product, without])])


_SLOPES: dict[str, Slope] = {
    "reduce_sum": lambda b, op, g, axes: g,
    "reduce_mean": lambda b, op, g, axes: scaled(
        b, g, 1 / max(math.prod(op.operands[0].type.shape[a] for a in axes), 1)
    ),
    "reduce_max": _extremum_slope,
    "reduce_min": _extremum_slope,
    "reduce_prod": _product_slope,
}


def define(name: str, doc: str, spec: str, infer: InferFn, evaluate: Any, lower: Compute | Decompose) -> None:
    register(
        OpDef(
            name=name,
            doc=f"{doc}\n\nAttributes `axes` (ascending, at least one) and `keepdims` (extent 1 instead of none).",
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html",
            infer=infer,
            evaluate=evaluate,
            gradient=_rule(_SLOPES[name]),
            in_place=None,
            view=None,
            slices=None,
            flops=lambda op: op.operands[0].type.elements,
            lower=lower,
            library=(),
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_SUMMABLE = infer_with(
    lambda t: t is not DType.BOOL and t not in HALF, "f64, f32 or integers (half precision is cast to f32 first)"
)
# TVM has no bf16 comparison that keeps nan, and f32 holds every bf16 value.
_ORDERED = infer_with(lambda t: t is not DType.BF16, "any element type but bf16 (bf16 is cast to f32 first)")


def infer_mean(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    results = _MEANABLE(operands, attrs)
    if not operands[0].dtype.is_float and math.prod(operands[0].shape[a] for a in axes_of(attrs, operands[0])) == 0:
        raise OpError(f"expected one or more integers along each axis of the mean, got {operands[0]}")
    return results


_MEANABLE = infer_with(lambda t: t.is_float or t.itemsize >= 4, "floats or integers of 32 or 64 bits")

define(
    "reduce_sum",
    "Sum along axes; 0 over an empty range. Half precision is rejected: cast to f32, so that sums accumulate in it.",
    "ReduceSum",
    _SUMMABLE,
    evaluate_with(np.sum, None),
    lower_with("sum"),
)
define(
    "reduce_prod",
    "Product along axes; 1 over an empty range. Half precision is rejected: cast to f32 first.",
    "ReduceProd",
    _SUMMABLE,
    evaluate_with(np.prod, None),
    lower_with("prod"),
)
define(
    "reduce_max",
    "Maximum along axes; over an empty range -inf, the least integer, or false. Bool: any. nan if an\nelement is nan.",
    "ReduceMax",
    _ORDERED,
    evaluate_with(np.max, lowest),
    lower_with("max"),
)
define(
    "reduce_min",
    "Minimum along axes; over an empty range inf, the greatest integer, or true. Bool: all. nan if an\nelement is nan.",
    "ReduceMin",
    _ORDERED,
    evaluate_with(np.min, highest),
    lower_with("min"),
)
define(
    "reduce_mean",
    "Mean along axes, accumulated in f32 for half precision. Of integers the exact mean, truncated towards 0.",
    "ReduceMean",
    infer_mean,
    evaluate_mean,
    Decompose(decompose_mean),
)

# SPDX-License-Identifier: Apache-2.0
"""max_pool_taps, max_pool_grad, sum_pool_grad: what the gradients of pools are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.casts import cast
from .shared.common import flat_index
from .shared.first_largest import TYPES
from .shared.first_of_window import first_largest, lower_first_largest
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, flat, register
from .shared.window import (
    Window,
    accumulator,
    cover_extents,
    covering,
    int_tuple,
    positions,
    require_count,
    strided,
    window,
)

_WINDOW = ("kernel", "strides", "pads", "dilations")
_WINDOW_DOC = "Attributes: those of the pool"


def _tap_type(view: Window) -> DType:
    return DType.U8 if math.prod(view.kernel) < 256 else DType.I32


def _no_tap(view: Window) -> int:
    return int(np.iinfo(_tap_type(view).numpy).max)


def taps_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    (x,) = operands
    if x.rank < 3 or x.dtype not in TYPES:
        raise OpError(f"expected x [N, C, spatial...] of floats or integers of up to 32 bits, got {x}")
    view = window(attrs, None, x.rank - 2)
    return [TensorType(_tap_type(view), (*x.shape[:2], *view.output(x.shape[2:])))]


def taps_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    view, result = window(attrs, None, inputs[0].ndim - 2), results[0]
    taps = first_largest(inputs[0], view, result.shape, _no_tap(view))
    return [taps.astype(result.dtype.numpy)]


def taps_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    dtype = op.result.type.dtype
    view = window(op.attrs, None, op.result.type.rank - 2)
    find = lower_first_largest(b, op, inputs[0], view)
    none = b.const(_no_tap(view), DType.I64)
    return [b.compute(op.result.type, lambda *at: b.cast(find(at, none), dtype))]


def _unpooled(g: TensorType, attrs: Attrs) -> TensorType:
    """The type of a pool's operand from that of the gradient in its result."""
    if g.rank < 3 or not g.dtype.is_float:
        raise OpError(f"expected a gradient [N, C, out...] of floats, got {g}")
    shape = int_tuple(attrs, "shape", g.rank - 2, 0)
    out = window(attrs, None, g.rank - 2).output(shape)
    if g.shape[2:] != out:
        raise OpError(f"expected a gradient of {list(out)} windows for the extents {list(shape)}, got {g}")
    return TensorType(accumulator(g.dtype), (*g.shape[:2], *shape))


def _spread(g: Array, result: TensorType, view: Window, share: Any) -> Array:
    """Add up, for each element, `share(tap number)` of all windows [N, C, out...] that cover it."""
    grown = [low + n + high for low, n, high in zip(view.low, result.shape[2:], view.high)]
    total = np.zeros((*result.shape[:2], *grown), dtype=result.dtype.numpy)
    for tap, position in enumerate(positions(view.kernel)):
        # A view of `total`, of which each element is met once for a tap.
        strided(total, view, position, g.shape[2:])[...] += share(tap)
    crop = [slice(low, low + n) for low, n in zip(view.low, result.shape[2:])]
    return np.ascontiguousarray(total[(slice(None), slice(None), *crop)])


def max_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 2)
    taps, g = operands
    result = _unpooled(g, attrs)
    expected = TensorType(_tap_type(window(attrs, None, g.rank - 2)), g.shape)
    if taps != expected:
        raise OpError(f"expected taps {expected}, got {taps}")
    return [result]


def max_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    taps, g = inputs
    wide = g.astype(results[0].dtype.numpy, copy=False)
    view = window(attrs, None, g.ndim - 2)
    return [_spread(g, results[0], view, lambda tap: np.where(taps == tap, wide, 0))]


def max_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    taps_type, dtype = op.operands[0].type.dtype, op.result.type.dtype
    view = window(op.attrs, None, op.result.type.rank - 2)

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        def term(*steps: Expr) -> Expr:
            index, taps, there = covering(b, view, at, steps, op.operands[1].type.shape[2:])
            place = (n, c, *index)
            hit = b.equal(inputs[0][place], b.cast(flat_index(taps, view.kernel), taps_type))
            value = b.select(hit, b.cast(inputs[1][place], dtype), b.const(0, dtype))
            return b.select(there, value, b.const(0, dtype))

        return b.reduce("sum", cover_extents(view), term)

    return [b.compute(op.result.type, body)]


def _window_of(op: Op) -> dict[str, Any]:
    return {name: op.attrs[name] for name in _WINDOW}


def sum_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    require_count(operands, 1)
    return [_unpooled(operands[0], attrs)]


def sum_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    (g,) = inputs
    wide = g.astype(results[0].dtype.numpy, copy=False)
    return [_spread(g, results[0], window(attrs, None, g.ndim - 2), lambda tap: wide)]


def sum_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    dtype = op.result.type.dtype
    view = window(op.attrs, None, op.result.type.rank - 2)

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        def term(*steps: Expr) -> Expr:
            index, _, there = covering(b, view, at, steps, op.operands[0].type.shape[2:])
            return b.select(there, b.cast(inputs[0][(n, c, *index)], dtype), b.const(0, dtype))

        return b.reduce("sum", cover_extents(view), term)

    return [b.compute(op.result.type, body)]


def sum_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (d,) = grads
    return [None if d is None else cast(b, b.op("sum_pool", [d], **_window_of(op)), op.operands[0].type.dtype)]


def _flops(op: Op) -> int:
    return op.result.type.elements * math.prod(cover_extents(window(op.attrs, None, op.result.type.rank - 2)))


def _define(name: str, doc: str, infer: Any, evaluate: Any, lower: Any, gradient: Any, flops: Any) -> None:
    register(
        OpDef(
            name=name,
            doc=doc,
            spec=None,
            infer=infer,
            evaluate=evaluate,
            gradient=gradient,
            in_place=None,
            view=None,
            slices=None,
            flops=flops,
            lower=Compute(lower),
            library=(),
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_define(
    "max_pool_taps",
    "Where in its window max_pool found each value: the row-major number of the kernel position.\n\n"
    "Operand: x [N, C, spatial...], that of max_pool. Of equal elements the first counts, as in PyTorch (of f64 those are\n"
    "equal that agree in all but as many last bits as the number of a position takes); a window without any (all padding,\n"
    "or not a number) gives the largest number. The result is u8 for kernels of up to 255 elements, else i32. "
    + _WINDOW_DOC
    + ".",
    taps_infer,
    taps_evaluate,
    taps_lower,
    flat,
    lambda op: op.result.type.elements * math.prod(window(op.attrs, None, op.result.type.rank - 2).kernel),
)
_define(
    "max_pool_grad",
    "The gradient of max_pool in its operand, from max_pool_taps and the gradient [N, C, out...] in its result: each\n"
    "window's goes to the element under its tap.\n\n"
    + _WINDOW_DOC
    + ", and `shape`: the spatial extents of its operand. f16 and bf16 give an f32 result.",
    max_infer,
    max_evaluate,
    max_lower,
    None,
    _flops,
)
_define(
    "sum_pool_grad",
    "The gradient of sum_pool in its operand, from that in its result [N, C, out...]: each element's is the sum of those\n"
    "of all windows that cover it.\n\n"
    + _WINDOW_DOC
    + ", and `shape`: the spatial extents of its operand. f16 and bf16 give an f32 result.",
    sum_infer,
    sum_evaluate,
    sum_lower,
    sum_gradient,
    _flops,
)

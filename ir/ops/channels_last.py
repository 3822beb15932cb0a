# SPDX-License-Identifier: Apache-2.0
"""conv_channels_last, max_pool_channels_last and sum_pool_channels_last: what `conv`, `max_pool` and `sum_pool` compute of images
[N, spatial..., C].

Tensor cores read factors along the channels, so that libraries compute convolutions of such images without copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..type_inference import InferFn
from ..types import TensorType
from . import conv, pool
from .library.cuda_conv import CONV_CHANNELS_LAST_CUDA
from .shared.layout import first_array, first_type, last_array, last_type, to_first, to_last
from .shared.op_def import (
    Attrs,
    Builder,
    Compute,
    EvaluateFn,
    Expr,
    GradientFn,
    LibraryKernel,
    OpDef,
    Tensor,
    Trait,
    lookup,
    register,
)
from .shared.window import Window, integer, lowest, source, window

SPEC_CONV = "https://onnx.ai/onnx/operators/onnx__Conv.html"
SPEC_MAX_POOL = "https://onnx.ai/onnx/operators/onnx__MaxPool.html"


def infer_as(infer: InferFn, images: int) -> InferFn:
    """The types of an op whose first `images` operands, and whose result, have channels first in `infer`."""

    def rule(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
        if any(t.rank < 3 for t in operands[:images]):
            given = ", ".join(map(str, operands[:images]))
            raise OpError(f"expected tensors of rank 3 or more with the channels last, got {given}")
        try:
            (found,) = infer([*map(first_type, operands[:images]), *operands[images:]], attrs)
        except OpError as error:
            raise OpError(f"{error}, shown with the channels first") from None
        return [last_type(found)]

    return rule


def evaluate_as(evaluate: EvaluateFn, images: int) -> EvaluateFn:
    def rule(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
        given = [*map(first_array, inputs[:images]), *inputs[images:]]
        return [last_array(y) for y in evaluate(given, attrs, [first_type(t) for t in results])]

    return rule


def gradient_as(name: str, images: int) -> GradientFn:
    """The gradient of the op of that name, with transposes around it."""

    def rule(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        definition = lookup(name)
        assert definition is not None and definition.gradient is not None
        (g,) = grads
        if g is None:
            return [None] * len(op.operands)
        rank = g.type.rank
        given = [b.op("transpose", [v], perm=to_first(rank)) for v in op.operands[:images]]
        like = Op(name, [*given, *op.operands[images:]], [Value("y", first_type(op.result.type))], dict(op.attrs))
        found = definition.gradient(b, like, [b.op("transpose", [g], perm=to_first(rank))])
        back = [v if v is None else b.op("transpose", [v], perm=to_last(rank)) for v in found[:images]]
        return [*back, *found[images:]]

    return rule


def read_last(
    b: Builder, op: Op, x: Tensor, view: Window, n: Expr, at: Sequence[Expr], taps: Sequence[Expr], channel: Expr
) -> Expr:
    """The element of x under tap `taps` of window `at`, or what padding counts as."""
    type = op.operands[0].type
    index, guards = source(b, type.shape[1:-1], view, at, taps)
    value = x[(n, *index, channel)]
    outside = b.const(lowest(type.dtype) if op.name.startswith("max") else 0, type.dtype)
    return b.select(b.logical_and(*guards), value, outside) if guards else value


def conv_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    w, dtype = op.operands[1].type, op.result.type.dtype
    per_group, channels = w.shape[0] // integer(op.attrs, "group", 1), w.shape[-1]
    view = window(op.attrs, w.shape[1:-1], w.rank - 2)

    def body(n: Expr, *place: Expr) -> Expr:
        *at, m = place
        base = b.floordiv(m, per_group) * channels if w.shape[0] != per_group else None

        def term(*tap: Expr) -> Expr:
            *taps, c = tap
            value = read_last(b, op, inputs[0], view, n, at, taps, c if base is None else base + c)
            product = b.cast(value, dtype) * b.cast(inputs[1][(m, *tap)], dtype)
            if len(inputs) < 3:
                return product
            # A kernel is one reduction with nothing around it, so the bias enters with the first term.
            first = b.logical_and(*(b.equal(k, 0) for k in tap))
            return product + b.select(first, b.cast(inputs[2][m], dtype), b.const(0, dtype))

        return b.reduce("sum", w.shape[1:], term)

    return [b.compute(op.result.type, body)]


def pool_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    view = window(op.attrs, None, op.operands[0].type.rank - 2)

    def body(n: Expr, *place: Expr) -> Expr:
        *at, c = place

        def term(*taps: Expr) -> Expr:
            return b.cast(read_last(b, op, inputs[0], view, n, at, taps, c), op.result.type.dtype)

        return b.reduce("max" if op.name.startswith("max") else "sum", view.kernel, term)

    return [b.compute(op.result.type, body)]


def conv_flops(op: Op) -> int:
    return op.result.type.elements * (2 * math.prod(op.operands[1].type.shape[1:]) + (len(op.operands) == 3))


def pool_flops(op: Op) -> int:
    return op.result.type.elements * math.prod(window(op.attrs, None, op.result.type.rank - 2).kernel)


def define(name: str, doc: str, spec: str | None, infer: InferFn, evaluate: EvaluateFn, library: bool = False) -> None:
    images = 2 if library else 1
    kernels: tuple[LibraryKernel, ...] = (CONV_CHANNELS_LAST_CUDA,) if library else ()
    register(
        OpDef(
            name=f"{name}_channels_last",
            doc=doc,
            spec=spec,
            infer=infer_as(infer, images),
            evaluate=evaluate_as(evaluate, images),
            gradient=gradient_as(name, images),
            in_place=None,
            view=None,
            slices=None,
            flops=conv_flops if library else pool_flops,
            lower=Compute(conv_lower if library else pool_lower),
            library=kernels,
            traits=frozenset({Trait.REDUCTION}),
        )
    )


define(
    "conv",
    "Convolution of x [N, spatial..., C] with w [M, kernel..., C/group], plus an optional bias [M].\n\n"
    "Attributes and types are those of conv. Result [N, out..., M].",
    SPEC_CONV,
    conv.infer,
    conv.evaluate,
    library=True,
)
define(
    "max_pool",
    "Largest element of each window of x [N, spatial..., C].\n\nAttributes are those of max_pool. Padding never wins.",
    SPEC_MAX_POOL,
    pool.max_infer,
    pool.max_evaluate,
)
define(
    "sum_pool",
    "Sum of each window of x [N, spatial..., C].\n\nAttributes and types are those of sum_pool. Padding is zero.",
    None,
    pool.sum_infer,
    pool.sum_evaluate,
)

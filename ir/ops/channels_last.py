# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pools and their gradients on images [N, spatial..., C] and weights [M, kernel..., C]: each of these ops computes what
the op does whose name it begins with, and is made of that one's rules.

Tensor cores read factors along the channels, so that libraries compute convolutions of such images without copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..type_inference import InferFn
from ..types import TensorType
from . import conv, conv_grad_weight, conv_transpose, pool, pool_grad  # noqa: F401  What they register is looked up here.
from .library.cuda_conv_channels_last import (
    CONV_CHANNELS_LAST_CUDA,
    CONV_GRAD_WEIGHT_CHANNELS_LAST_CUDA,
    CONV_TRANSPOSE_CHANNELS_LAST_CUDA,
)
from .shared.layout import SUFFIX, first_array, first_type, last_array, last_type, to_first, to_last
from .shared.op_def import (
    Attrs,
    Builder,
    Compute,
    ComputeFn,
    EvaluateFn,
    Expr,
    GradientFn,
    LibraryKernel,
    OpDef,
    Tensor,
    flat,
    lookup,
    register,
)


def like(op: Op, images: int, operands: Sequence[Value] | None = None) -> Op:
    """The op with channels first that an op with channels last stands for; its operands are `operands` or only have their types."""
    if operands is None:
        operands = [Value(v.name, first_type(v.type) if n < images else v.type) for n, v in enumerate(op.operands)]
    result = Value(op.result.name, first_type(op.result.type))
    return Op(op.name.removesuffix(SUFFIX), list(operands), [result], dict(op.attrs))


def infer_as(infer: InferFn, images: int) -> InferFn:
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


def gradient_as(gradient: GradientFn | None, images: int) -> GradientFn | None:
    """The gradient with transposes around it."""
    if gradient is None or gradient is flat:
        return gradient

    def rule(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        (g,) = grads
        if g is None:
            return [None] * len(op.operands)
        rank = g.type.rank
        given = [b.op("transpose", [v], perm=to_first(rank)) for v in op.operands[:images]]
        first = like(op, images, [*given, *op.operands[images:]])
        found = gradient(b, first, [b.op("transpose", [g], perm=to_first(rank))])
        back = [v if v is None else b.op("transpose", [v], perm=to_last(rank)) for v in found[:images]]
        return [*back, *found[images:]]

    return rule


class FirstTensor:
    """A tensor with channels last, indexed with channels first."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> Any:
        batch, *spatial, channels = self.tensor.shape
        return (batch, channels, *spatial)

    def __getitem__(self, index: Any, /) -> Expr:
        batch, channel, *spatial = index
        return self.tensor[(batch, *spatial, channel)]


class FirstBuilder:
    """A builder whose tensors are made with channels last, by bodies that have them first."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def compute(self, type: TensorType, body: Callable[..., Expr]) -> FirstTensor:
        def turned(batch: Expr, *place: Expr) -> Expr:
            return body(batch, place[-1], *place[:-1])

        return FirstTensor(self.builder.compute(last_type(type), turned))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.builder, name)


def lower_as(lower: ComputeFn, images: int) -> ComputeFn:
    def rule(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        given = [FirstTensor(tensor) if n < images else tensor for n, tensor in enumerate(inputs)]
        (made,) = lower(cast(Builder, FirstBuilder(b)), like(op, images), given)
        return [cast(FirstTensor, made).tensor]

    return rule


def define(name: str, images: int, doc: str, library: Sequence[LibraryKernel] = ()) -> None:
    """Register the counterpart of an op whose first `images` operands, and whose result, have channels."""
    known = lookup(name)
    assert known is not None and isinstance(known.lower, Compute)
    register(
        OpDef(
            name=name + SUFFIX,
            doc=f"{doc}\n\nWhat {name} computes, of the same attributes and types but for the order of axes.",
            spec=known.spec,
            infer=infer_as(known.infer, images),
            evaluate=evaluate_as(known.evaluate, images),
            gradient=gradient_as(known.gradient, images),
            in_place=None,
            view=None,
            slices=None,
            flops=lambda op: known.flops(like(op, images)),
            lower=Compute(lower_as(known.lower.fn, images)),
            library=library,
            traits=known.traits,
        )
    )


define(
    "conv",
    2,
    "Convolution of x [N, spatial..., C] with w [M, kernel..., C/group], plus an optional bias [M].",
    [CONV_CHANNELS_LAST_CUDA],
)
define(
    "conv_transpose",
    2,
    "Transposed convolution of x [N, spatial..., C] with w [C, kernel..., M/group], plus an optional bias [M].",
    [CONV_TRANSPOSE_CHANNELS_LAST_CUDA],
)
define(
    "conv_grad_weight",
    2,
    "The gradient of conv_channels_last in its weights, from its x and the gradient [N, out..., M] in its result.",
    [CONV_GRAD_WEIGHT_CHANNELS_LAST_CUDA],
)
define("max_pool", 1, "Largest element of each window of x [N, spatial..., C].")
define("max_pool_taps", 1, "Where in its window max_pool_channels_last found each value.")
define("max_pool_grad", 2, "The gradient of max_pool_channels_last in its operand.")
define("sum_pool", 1, "Sum of each window of x [N, spatial..., C].")
define("sum_pool_grad", 1, "The gradient of sum_pool_channels_last in its operand.")

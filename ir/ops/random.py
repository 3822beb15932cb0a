# SPDX-License-Identifier: Apache-2.0
"""random_uniform, random_normal: tensors of random numbers, by a counter-based generator (`shared/philox.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import count, dtype_attr, int_attr, shape_attr
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, flat, register
from .shared.philox import drawn, lowered, require_draw

BITS = {DType.F32: 24, DType.F64: 32}
"""How many bits of a word a number from 0 to below 1 has: what the type holds."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    require_draw(operands[0], attrs)
    dtype = dtype_attr(attrs, "dtype")
    if dtype not in BITS:
        raise OpError(f"expected attribute `dtype` to be f32 or f64, got {dtype.value}")
    return [TensorType(dtype, shape_attr(attrs))]


def evaluate_uniform(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    kind, bits = results[0].dtype.numpy.type, BITS[results[0].dtype]
    word = drawn(inputs[0], int_attr(attrs, "stream"), results[0].shape)[0]
    return [(word >> np.uint64(32 - bits)).astype(kind) * kind(2.0**-bits)]


def evaluate_normal(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    kind = results[0].dtype.numpy.type
    first, second, *_ = drawn(inputs[0], int_attr(attrs, "stream"), results[0].shape)
    radius = np.sqrt(kind(-2) * np.log((first.astype(kind) + kind(0.5)) * kind(2.0**-32)))
    return [radius * np.cos(second.astype(kind) * kind(2 * math.pi * 2.0**-32))]


def lower_uniform(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    to, bits = op.result.type.dtype, BITS[op.result.type.dtype]
    word = lowered(b, inputs[0], int_attr(op.attrs, "stream"), op.result.type.shape)[0]

    def body(*index: Expr) -> Expr:
        high = b.binary("shift_right", word[index], b.const(32 - bits, DType.U64))
        return b.cast(b.cast(high, DType.I64), to) * b.const(2.0**-bits, to)

    return [b.compute(op.result.type, body)]


def lower_normal(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    to = op.result.type.dtype
    first, second, *_ = lowered(b, inputs[0], int_attr(op.attrs, "stream"), op.result.type.shape)

    def body(*index: Expr) -> Expr:
        share = (b.cast(b.cast(first[index], DType.I64), to) + b.const(0.5, to)) * b.const(2.0**-32, to)
        angle = b.cast(b.cast(second[index], DType.I64), to) * b.const(2 * math.pi * 2.0**-32, to)
        radius = b.unary("sqrt", b.const(-2.0, to) * b.unary("log", share))
        return radius * b.unary("cos", angle)

    return [b.compute(op.result.type, body)]


def _register(
    name: str, doc: str, evaluate: Callable[..., Sequence[Array]], lower: Callable[..., Sequence[Tensor]]
) -> None:
    register(
        OpDef(
            name=name,
            doc=f"{doc}\n\n"
            "Operand seed, i64[], for example a counter of runs. Attributes `shape`, `dtype` (f32 or f64) and `stream`, the number\n"
            "of the op among those that share a seed: ops of different streams, or seeds, draw independent numbers, on every\n"
            "target the same, by Philox 4x32-10 with the key seed and the counter (position, stream).",
            spec=None,
            infer=infer,
            evaluate=evaluate,
            gradient=flat,
            in_place=None,
            view=None,
            slices=None,
            flops=lambda op: 60 * op.result.type.elements,
            lower=Compute(lower),
            library=(),
            traits=frozenset({Trait.ELEMENTWISE, Trait.RANDOM, Trait.CHEAP}),
        )
    )


_register(
    "random_uniform",
    "Numbers from 0 to below 1, all equally likely: multiples of 2^-24 in f32, of 2^-32 in f64.",
    evaluate_uniform,
    lower_uniform,
)
_register(
    "random_normal",
    "Numbers of the standard normal distribution, at most 6.7 in size, by the method of Box and Muller.\n\n"
    "Targets agree up to the rounding of log and cos.",
    evaluate_normal,
    lower_normal,
)

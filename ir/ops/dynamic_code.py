# SPDX-License-Identifier: Apache-2.0
"""encode_dynamic, decode_dynamic: the dynamic code of 8-bit optimizers (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
Quantization").

256 numbers from -1 (or 0) to 1: 0, 1, and in each of seven decades the middles of 1, 2, 4 ... 64 equal intervals, twice as many where
there is no sign. They are in order, so that a byte is the place of its number. There is no code for -1.

Kernels choose the decade by comparisons, and the interval in it by a product: that takes no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core import Array, Op
from ..errors import OpError
from ..types import DType, TensorType
from .shared.common import bool_attr, count, elementwise
from .shared.op_def import Attrs, Builder, Expr, OpDef, Trait, flat, register

DECADES = 7

ZERO = 127
"""The byte of 0 in the code with signs."""

OPERATIONS = 20
"""Of one element, about."""


@dataclass(frozen=True)
class Decade:
    """The codes of one decade."""

    first: int
    """The place of its first code, where the smallest number above 0 has place 1."""
    count: int
    start: float
    """Where its first interval begins."""
    width: float
    """Of an interval."""

    def number(self, place: int) -> float:
        """The number at a place."""
        return self.start + (place - self.first + 0.5) * self.width


def decades(signed: bool) -> list[Decade]:
    """The seven decades, smallest first, of the code with or without signs."""
    found, first = [], 1
    for power in range(DECADES):
        codes = 2**power if signed else 2 ** (power + 1)
        scale = 10.0 ** (power - DECADES + 1)
        found.append(Decade(first, codes, 0.1 * scale, 0.9 * scale / codes))
        first += codes
    return found


def magnitudes(signed: bool) -> Array:
    """The numbers from 0 to 1 by place: 129 of them with signs, or 256; f64."""
    inner = [each.number(each.first + n) for each in decades(signed) for n in range(each.count)]
    return np.asarray([0.0, *inner, 1.0])


def numbers(signed: bool) -> Array:
    """The number of each byte, f32[256]."""
    found = magnitudes(signed).astype(np.float32)
    return np.concatenate([-found[-2:0:-1], found]) if signed else found


def infer_decode(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    bool_attr(attrs, "signed")
    if operands[0].dtype is not DType.U8:
        raise OpError(f"expected bytes, u8, got {operands[0]}")
    return [operands[0].with_dtype(DType.F32)]


def evaluate_decode(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    return [numbers(bool_attr(attrs, "signed"))[inputs[0]]]


def element_decode(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    signed = bool_attr(op.attrs, "signed")
    wide = b.cast(x[0], DType.F32)
    if signed:
        wide = wide - b.const(ZERO, DType.F32)
    place = b.unary("abs", wide) if signed else wide
    found = b.const(0, DType.F32)
    for each in decades(signed):
        base = b.const(each.number(0), DType.F32)
        found = b.select(place >= b.const(each.first, DType.F32), place * b.const(each.width, DType.F32) + base, found)
    last = b.const(each.first + each.count, DType.F32)
    found = b.select(place >= last, b.const(1, DType.F32), found)
    return b.select(wide < b.const(0, DType.F32), found * b.const(-1, DType.F32), found) if signed else found


def infer_encode(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    bool_attr(attrs, "signed")
    if operands[0].dtype is not DType.F32:
        raise OpError(f"expected numbers of f32, got {operands[0]}")
    return [operands[0].with_dtype(DType.U8)]


def evaluate_encode(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    known = numbers(bool_attr(attrs, "signed")).astype(np.float64)
    middles = (known[1:] + known[:-1]) / 2
    x = np.nan_to_num(inputs[0].astype(np.float64), nan=0.0)
    return [np.searchsorted(middles, x, side="right").astype(np.uint8)]


def element_encode(b: Builder, op: Op, x: Sequence[Expr]) -> Expr:
    signed, known = bool_attr(op.attrs, "signed"), magnitudes(bool_attr(op.attrs, "signed"))
    size = b.unary("abs", x[0]) if signed else x[0]

    def f32(number: float) -> Expr:
        return b.const(number, DType.F32)

    place = f32(0)
    for each in decades(signed):
        # From the middle between the last number of the decade below and the first of this one.
        inside = size >= f32((known[each.first - 1] + known[each.first]) / 2)
        interval = b.unary("floor", (size - f32(each.start)) * f32(1 / each.width))
        interval = b.minimum(b.maximum(interval, f32(0)), f32(each.count - 1))
        place = b.select(inside, interval + f32(each.first), place)
    place = b.select((x[0] if signed else size) >= f32((known[-2] + 1) / 2), f32(len(known) - 1), place)
    if signed:
        place = b.select(x[0] < f32(0), place * f32(-1), place) + f32(ZERO)
    return b.cast(b.cast(place, DType.I32), DType.U8)


def _flops(op: Op) -> int:
    return op.result.type.elements * OPERATIONS


register(
    OpDef(
        name="decode_dynamic",
        doc="The number of each byte in the dynamic code of 8-bit optimizers.\n\n"
        "One operand, u8; the result is f32 of its shape, from -1 to 1, or from 0 without `signed`.",
        spec="https://arxiv.org/abs/2110.02861",
        infer=infer_decode,
        evaluate=evaluate_decode,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=_flops,
        lower=elementwise(element_decode, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE}),
    )
)

register(
    OpDef(
        name="encode_dynamic",
        doc="The byte of the nearest number in the dynamic code of 8-bit optimizers.\n\n"
        "One operand, f32 from -1 to 1, or from 0 without `signed`; the result is u8 of its shape. Beyond those limits it is the byte\n"
        "of the nearest one; NaN has that of 0. In the middle between two numbers, rounding decides.",
        spec="https://arxiv.org/abs/2110.02861",
        infer=infer_encode,
        evaluate=evaluate_encode,
        gradient=flat,
        in_place=None,
        view=None,
        slices=None,
        flops=_flops,
        lower=elementwise(element_encode, raw=True),
        library=(),
        traits=frozenset({Trait.ELEMENTWISE}),
    )
)

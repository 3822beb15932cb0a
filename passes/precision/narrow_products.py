# SPDX-License-Identifier: Apache-2.0
"""narrow-products: products of values that are half precision, seen as f32, become products of the halves.

    matmul(cast(a), cast(b))     matmul(a, b)     a and b f16, both products f32

Both are exact products added up in f32. Gradients write the first, as rules compute in the type of what arrives. A cast of
a product's result to half precision is put right behind it, where a library kernel can take it in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.casts import HALF, PRODUCTS
from memc.ir.snapshot import is_raw
from memc.ir.types import DType
from memc.passes.base import Pass
from memc.passes.rewrite.canonicalize import remove_dead

MOVES = ("reshape", "transpose", "slice", "broadcast")
"""What may lie between a cast and a product: it moves halves as well."""


def narrow_products(module: Module, function: Function) -> None:
    """Narrow the products of a function, and drop the casts that nothing reads any more."""
    builder = IRBuilder(module, function, [])
    for op in function.ops:
        builder.location = op.location
        if op.name in PRODUCTS and op.result.type.dtype is DType.F32:
            _narrow_operands(builder, op)
        builder.ops.append(op)
    function.ops = builder.ops
    remove_dead(module, function)
    _round_at_once(function)


def _narrow_operands(b: IRBuilder, op: Op) -> None:
    """Give the product the halves that its factors are made of. A bias stays as it is: it is added to the sum."""
    found = [half_source(v) for v in op.operands[:2]]
    if found[0] is None or found[0] is not found[1]:
        return
    op.operands = [*(_narrowed(b, v, found[0]) for v in op.operands[:2]), *op.operands[2:]]


def half_source(value: Value) -> DType | None:
    """The type of the halves that an f32 value holds, maybe moved; None for other values."""
    while value.op is not None and value.op.name in MOVES:
        value = value.op.operands[0]
    if value.op is None or value.op.name != "cast":
        return None
    source = value.op.operands[0].type.dtype
    return source if source in HALF and value.type.dtype is DType.F32 else None


def _narrowed(b: IRBuilder, value: Value, to: DType) -> Value:
    op = value.op
    assert op is not None
    if op.name == "cast":
        return op.operands[0]
    return b.op(op.name, [_narrowed(b, op.operands[0], to)], op.plan, **op.attrs)


def _round_at_once(function: Function) -> None:
    """Move the only reader of a product behind it, if that is a cast to half precision."""
    uses, returned = function.uses(), set(function.returns)
    readers: dict[Op, Op] = {}
    for op in function.ops:
        if op.name not in PRODUCTS or op.result in returned:
            continue
        (reader, *others) = uses.get(op.result, [op])
        if not others and reader.name == "cast" and reader.result.type.dtype in HALF:
            readers[op] = reader
    moved = set(readers.values())
    function.ops = [
        each for op in function.ops if op not in moved for each in ([op, readers[op]] if op in readers else [op])
    ]


@dataclass(frozen=True)
class NarrowProducts(Pass):
    """Products of widened halves become products of the halves; after build-gradient."""

    name: ClassVar[str] = "narrow-products"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                narrow_products(module, function)

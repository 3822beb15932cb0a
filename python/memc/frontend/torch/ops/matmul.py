# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast

from ..context import NodeContext, converts


def product(ctx: NodeContext, x: Value, y: Value, *, transpose_b: bool = False) -> Value:
    """The matrix product in the operands' type (half precision accumulates in f32)."""
    found = ctx.b.op("matmul", [x, y], transpose_a=False, transpose_b=transpose_b)
    return cast(ctx.b, found, x.type.dtype)


@converts("aten.linear.default")
def linear(ctx: NodeContext) -> Value:
    b, x, w = ctx.b, ctx.value("input"), ctx.value("weight")
    one = x.type.rank == 1
    x = b.op("reshape", [x], shape=(1, *x.type.shape)) if one else x
    found = product(ctx, x, w, transpose_b=True)
    if ctx.has("bias"):
        found = b.op("add", [found, ctx.value("bias")])
    return b.op("reshape", [found], shape=found.type.shape[1:]) if one else found


@converts("aten.mm.default", "aten.bmm.default")
def mm(ctx: NodeContext) -> Value:
    return product(ctx, ctx.value("self"), ctx.value("mat2"))


@converts("aten.addmm.default", "aten.baddbmm.default")
def addmm(ctx: NodeContext) -> Value:
    names = ("mat1", "mat2") if ctx.node.target == "aten.addmm.default" else ("batch1", "batch2")
    b, found = ctx.b, product(ctx, ctx.value(names[0]), ctx.value(names[1]))
    alpha, beta = ctx.get("alpha", 1), ctx.get("beta", 1)
    if alpha != 1:
        found = b.op("mul", [found, ctx.typed(alpha, found.type.dtype)])
    addend = ctx.value("self")
    if beta == 0:
        return found
    if beta != 1:
        addend = b.op("mul", [addend, ctx.typed(beta, addend.type.dtype)])
    return b.op("add", [found, addend])


@converts("aten.matmul.default")
def matmul(ctx: NodeContext) -> Value:
    return general_product(ctx, ctx.value("self"), ctx.value("other"))


@converts("aten.mv.default")
def mv(ctx: NodeContext) -> Value:
    return general_product(ctx, ctx.value("self"), ctx.value("vec"))


@converts("aten.dot.default")
def dot(ctx: NodeContext) -> Value:
    return general_product(ctx, ctx.value("self"), ctx.value("tensor"))


def general_product(ctx: NodeContext, x: Value, y: Value) -> Value:
    """numpy.matmul: an operand of rank 1 is a row on the left, a column on the right, and leaves no axis behind."""
    b, left, right = ctx.b, x.type.rank == 1, y.type.rank == 1
    x = b.op("reshape", [x], shape=(1, *x.type.shape)) if left else x
    y = b.op("reshape", [y], shape=(*y.type.shape, 1)) if right else y
    found = product(ctx, x, y)
    if not (left or right):
        return found
    *batch, m, n = found.type.shape
    return b.op("reshape", [found], shape=(*batch, *([] if left else [m]), *([] if right else [n])))


@converts("aten.outer.default")
def outer(ctx: NodeContext) -> Value:
    b, x, y = ctx.b, ctx.value("self"), ctx.value("vec2")
    return b.op("mul", [b.op("reshape", [x], shape=(x.type.elements, 1)), y])


@converts("aten.einsum.default")
def einsum(ctx: NodeContext) -> Value:
    """A sum of products over named axes, two operands at a time from left to right."""
    equation = str(ctx.get("equation")).replace(" ", "")
    values = ctx.values("tensors")
    if "." in equation:
        raise ctx.unsupported(f"an ellipsis in the equation {equation}")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "->" not in equation:
        letters = "".join(terms)
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if any(len(set(term)) != len(term) for term in terms):
        raise ctx.unsupported(f"an axis twice in one operand of the equation {equation}")
    found, term = values[0], terms[0]
    for position in range(1, len(values)):
        later = set("".join(terms[position + 1 :]) + right)
        found, term = _contracted(ctx, (found, values[position]), (term, terms[position]), later)
    gone = tuple(axis for axis, letter in enumerate(term) if letter not in right)
    if gone:
        found = ctx.b.op("reduce_sum", [found], axes=gone, keepdims=False)
        term = "".join(letter for letter in term if letter in right)
    return _permuted(ctx, found, [term.index(letter) for letter in right])


def _permuted(ctx: NodeContext, x: Value, perm: Sequence[int]) -> Value:
    return x if list(perm) == sorted(perm) else ctx.b.op("transpose", [x], perm=tuple(perm))


def _contracted(
    ctx: NodeContext, values: tuple[Value, Value], terms: tuple[str, str], later: set[str]
) -> tuple[Value, str]:
    """The product of two operands, summed over the axes that nothing else has."""
    first, second = terms
    batch = [c for c in first if c in second and c in later]
    summed = [c for c in first if c in second and c not in later]
    own = [[c for c in term if c not in other] for term, other in ((first, second), (second, first))]
    sizes = {c: n for value, term in zip(values, terms) for c, n in zip(term, value.type.shape)}

    def arranged(value: Value, term: str, order: Sequence[Sequence[str]]) -> Value:
        turned = _permuted(ctx, value, [term.index(c) for group in order for c in group])
        shape = (*(sizes[c] for c in order[0]), *(math.prod(sizes[c] for c in group) for group in order[1:]))
        return ctx.b.op("reshape", [turned], shape=shape)

    x = arranged(values[0], first, (batch, own[0], summed))
    y = arranged(values[1], second, (batch, summed, own[1]))
    found = product(ctx, x, y)
    term = "".join([*batch, *own[0], *own[1]])
    return ctx.b.op("reshape", [found], shape=tuple(sizes[c] for c in term)), term

# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import numpy as np

from memc.ir.core import Value
from memc.ir.ops.shared.casts import cast

from ..context import NodeContext, converts
from .views import permuted


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


@converts("aten.addmv.default", "aten.addbmm.default", "aten.addr.default")
def add_product(ctx: NodeContext) -> Value:
    """beta self + alpha times a product: of a matrix and a vector, of batches added up, or of two vectors."""
    b, kind = ctx.b, ctx.node.target.split(".")[1]
    if kind == "addmv":
        found = general_product(ctx, ctx.value("mat"), ctx.value("vec"))
    elif kind == "addbmm":
        found = product(ctx, ctx.value("batch1"), ctx.value("batch2"))
        found = b.op("reduce_sum", [found], axes=(0,), keepdims=False)
    else:
        x, y = ctx.value("vec1"), ctx.value("vec2")
        found = b.op("mul", [b.op("reshape", [x], shape=(x.type.elements, 1)), y])
    addend, alpha, beta = ctx.value("self"), ctx.get("alpha", 1), ctx.get("beta", 1)
    if alpha != 1:
        found = b.op("mul", [found, ctx.typed(alpha, found.type.dtype)])
    if beta == 0:
        return found
    addend = addend if beta == 1 else b.op("mul", [addend, ctx.typed(beta, addend.type.dtype)])
    return b.op("add", [found, addend])


@converts("aten.inner.default")
def inner(ctx: NodeContext) -> Value:
    """The sum over the last axes of both."""
    x, y = ctx.value("self"), ctx.value("other")
    if not x.type.rank or not y.type.rank:
        return ctx.b.op("mul", [x, y])
    return _tensor_product(ctx, (x, y), [x.type.rank - 1], [y.type.rank - 1])


@converts("aten.tensordot.default")
def tensordot(ctx: NodeContext) -> Value:
    x, y = ctx.value("self"), ctx.value("other")
    axes = [[ctx.axis(a, v.type.rank) for a in ctx.ints(name)] for v, name in ((x, "dims_self"), (y, "dims_other"))]
    return _tensor_product(ctx, (x, y), *axes)


def _tensor_product(
    ctx: NodeContext, values: tuple[Value, Value], first: Sequence[int], second: Sequence[int]
) -> Value:
    """The sum over axes of both, one by one."""
    x, y = values
    own = [a for a in range(x.type.rank) if a not in first], [a for a in range(y.type.rank) if a not in second]
    shape = (*(x.type.shape[a] for a in own[0]), *(y.type.shape[a] for a in own[1]))
    inside = math.prod(x.type.shape[a] for a in first)
    left = permuted(ctx.b, x, [*own[0], *first])
    right = permuted(ctx.b, y, [*second, *own[1]])
    left = ctx.b.op("reshape", [left], shape=(math.prod(x.type.shape[a] for a in own[0]), inside))
    right = ctx.b.op("reshape", [right], shape=(inside, math.prod(y.type.shape[a] for a in own[1])))
    return ctx.b.op("reshape", [product(ctx, left, right)], shape=shape)


@converts("aten.linalg_vecdot.default")
def vecdot(ctx: NodeContext) -> Value:
    found = ctx.b.op("mul", [ctx.value("x"), ctx.value("y")])
    axis = ctx.axis(int(ctx.get("dim", -1)), found.type.rank)
    return ctx.b.op("reduce_sum", [found], axes=(axis,), keepdims=False)


@converts("aten.einsum.default")
def einsum(ctx: NodeContext) -> Value:
    """A sum of products over named axes, two operands at a time from left to right."""
    equation = str(ctx.get("equation")).replace(" ", "")
    given = ctx.values("tensors")
    named, right = _terms(ctx, equation, [v.type.rank for v in given])
    diagonals = [_without_repeats(ctx, value, term) for value, term in zip(given, named)]
    sizes: dict[str, int] = {}
    for value, term in diagonals:
        sizes.update({c: n for c, n in zip(term, value.type.shape) if n != 1 or c not in sizes})
    shrunk = [_without_ones(ctx, value, term, sizes) for value, term in diagonals]
    values, terms = [value for value, _ in shrunk], [term for _, term in shrunk]
    found, term = values[0], terms[0]
    for position in range(1, len(values)):
        later = set("".join(terms[position + 1 :]) + right)
        found, term = _contracted(ctx, (found, values[position]), (term, terms[position]), later)
    gone = tuple(axis for axis, letter in enumerate(term) if letter not in right)
    if gone:
        found = ctx.b.op("reduce_sum", [found], axes=gone, keepdims=False)
        term = "".join(letter for letter in term if letter in right)
    return permuted(ctx.b, found, [term.index(letter) for letter in right])


def _terms(ctx: NodeContext, equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand's axes and of the result's, with some of their own for those that `...` stands for."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    free = [c for c in string.ascii_letters if c not in equation]
    most = max((rank - len(t.replace("...", "")) for rank, t in zip(ranks, terms) if "..." in t), default=0)
    if most > len(free):
        raise ctx.unsupported(f"more axes than there are letters in the equation {equation}")
    dots = "".join(free[:most])
    if not arrow:
        letters = "".join(terms).replace("...", "")
        right = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    named = []
    for rank, term in zip(ranks, terms):
        count = rank - len(term.replace("...", ""))
        named.append(term.replace("...", dots[most - count :] if count else ""))
    return named, right.replace("...", dots)


def _without_repeats(ctx: NodeContext, x: Value, term: str) -> tuple[Value, str]:
    """The diagonal of axes that have one letter."""
    b = ctx.b
    while (twice := next((c for c in term if term.count(c) > 1), None)) is not None:
        first = term.index(twice)
        second = term.index(twice, first + 1)
        order = [*(a for a in range(len(term)) if a not in (first, second)), first, second]
        x = permuted(b, x, order)
        *rest, count, other = x.type.shape
        if count != other:
            raise ctx.unsupported(f"the axes {twice} of one operand have {count} and {other} elements")
        flat = b.op("reshape", [x], shape=(*rest, count * count))
        at = np.arange(count, dtype=np.int64) * (count + 1)
        x = b.op("gather", [flat, b.constant(at)], axis=len(rest))
        term = "".join(term[a] for a in order[:-1])
    return x, term


def _without_ones(ctx: NodeContext, x: Value, term: str, sizes: dict[str, int]) -> tuple[Value, str]:
    """Without axes of one element that other operands have more of."""
    kept = [a for a, (c, n) in enumerate(zip(term, x.type.shape)) if n == sizes[c]]
    if len(kept) == len(term):
        return x, term
    return ctx.b.op("reshape", [x], shape=tuple(x.type.shape[a] for a in kept)), "".join(term[a] for a in kept)


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
        turned = permuted(ctx.b, value, [term.index(c) for group in order for c in group])
        shape = (*(sizes[c] for c in order[0]), *(math.prod(sizes[c] for c in group) for group in order[1:]))
        return ctx.b.op("reshape", [turned], shape=shape)

    x = arranged(values[0], first, (batch, own[0], summed))
    y = arranged(values[1], second, (batch, summed, own[1]))
    found = product(ctx, x, y)
    term = "".join([*batch, *own[0], *own[1]])
    return ctx.b.op("reshape", [found], shape=tuple(sizes[c] for c in term)), term

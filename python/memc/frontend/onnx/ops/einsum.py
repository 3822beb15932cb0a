# SPDX-License-Identifier: Apache-2.0
"""Einsum as transposes, reductions and batched matrix products, operand after operand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.reduce import reduce

from ..context import Known, NodeContext, imports
from .matmul import product


def parse(ctx: NodeContext, equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Labels per operand and of the result. Axes under an ellipsis are labelled `.0`, `.1` ... counted from the right."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ctx.unsupported(f"equation `{equation}` has {len(terms)} operands, the node {len(ranks)}")
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
    for term, count in zip(terms, hidden):
        letters = term.replace("...", "")
        if count < 0 or (count and "..." not in term) or not all(c.isalpha() for c in letters):
            raise ctx.unsupported(f"term `{term}` of equation `{equation}` does not fit its operand")
    labels = [_labels(term, count) for term, count in zip(terms, hidden)]
    widest = max(count for term, count in zip(terms, hidden)) if terms else 0
    if arrow:
        result = _labels(right, widest)
    else:
        counts = Counter(label for term in labels for label in term)
        single = sorted(l for l, n in counts.items() if n == 1 and not l.startswith("."))
        result = [*(_labels("...", widest) if any("..." in t for t in terms) else []), *single]
    known = {label for term in labels for label in term}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ctx.unsupported(f"result of equation `{equation}` repeats a label or has one of no operand")
    return labels, result


def _labels(term: str, hidden: int) -> list[str]:
    before, dots, after = term.partition("...")
    middle = [f".{hidden - 1 - i}" for i in range(hidden)] if dots else []
    return [*before, *middle, *after]


def _transpose(ctx: NodeContext, x: Value, labels: list[str], order: list[str]) -> Value:
    perm = tuple(labels.index(label) for label in order)
    return x if perm == tuple(range(len(perm))) else ctx.b.op("transpose", [x], perm=perm)


def _diagonals(ctx: NodeContext, x: Value, labels: list[str]) -> tuple[Value, list[str]]:
    """Take the diagonal of every label an operand repeats."""
    b = ctx.b
    while len(set(labels)) < len(labels):
        label = next(l for l, n in Counter(labels).items() if n > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        rest = [a for a in range(len(labels)) if a not in (first, second)]
        n, m = x.type.shape[first], x.type.shape[second]
        if n != m:
            raise ctx.unsupported(f"label `{label}` stands for extents {n} and {m}")
        moved = b.op("transpose", [x], perm=(*rest, first, second))
        lead = moved.type.shape[:-2]
        flat = b.op("reshape", [moved], shape=(*lead, n * n))
        zeros, ones = (0,) * len(lead), (1,) * len(lead)
        x = b.op("slice", [flat], starts=(*zeros, 0), stops=(*lead, n * n), steps=(*ones, n + 1))
        labels = [*(labels[a] for a in rest), label]
    return x, labels


def _drop(ctx: NodeContext, x: Value, labels: list[str], keep: set[str]) -> tuple[Value, list[str]]:
    """Sum over the labels not in `keep`."""
    axes = [a for a, label in enumerate(labels) if label not in keep]
    return reduce(ctx.b, "sum", x, axes, False), [label for label in labels if label in keep]


def _contract(
    ctx: NodeContext, x: Value, xs: list[str], y: Value, ys: list[str], keep: set[str]
) -> tuple[Value, list[str]]:
    """The product of two operands, summed over the labels that both have and nobody needs any more."""
    b = ctx.b
    x_size, y_size = dict(zip(xs, x.type.shape)), dict(zip(ys, y.type.shape))
    for label in xs:
        if label in y_size and x_size[label] != y_size[label] and 1 not in (x_size[label], y_size[label]):
            raise ctx.unsupported(f"label `{label}` stands for extents {x_size[label]} and {y_size[label]}")
    shared = [label for label in xs if label in y_size]
    inner = [l for l in shared if l not in keep and x_size[l] == y_size[l]]
    outer = [l for l in shared if l not in inner]
    only_x = [l for l in xs if l not in y_size]
    only_y = [l for l in ys if l not in x_size]
    size = {
        l: max(x_size.get(l, 1), y_size.get(l, 1)) if 0 not in (x_size.get(l, 1), y_size.get(l, 1)) else 0
        for l in [*xs, *ys]
    }
    left = _transpose(ctx, x, xs, [*outer, *only_x, *inner])
    right = _transpose(ctx, y, ys, [*outer, *inner, *only_y])
    m, n, k = (math.prod(size[l] for l in group) for group in (only_x, only_y, inner))
    if inner:
        left = b.op("reshape", [left], shape=(*(x_size[l] for l in outer), m, k))
        right = b.op("reshape", [right], shape=(*(y_size[l] for l in outer), k, n))
        found = product(b, left, right)
    else:
        left = b.op("reshape", [left], shape=(*(x_size[l] for l in outer), m, 1))
        right = b.op("reshape", [right], shape=(*(y_size[l] for l in outer), 1, n))
        found = b.op("mul", [left, right])
    labels = [*outer, *only_x, *only_y]
    found = b.op("reshape", [found], shape=tuple(size[l] for l in labels))
    return _drop(ctx, found, labels, keep)


@imports("Einsum")
def einsum(ctx: NodeContext) -> Sequence[Known]:
    values = [ctx.value(i) for i in range(len(ctx.inputs))]
    labels, result = parse(ctx, str(ctx.attr("equation", "")), [v.type.rank for v in values])
    operands = [_diagonals(ctx, value, term) for value, term in zip(values, labels)]
    needed = [set(result).union(*(set(t) for _, t in operands[i + 1 :])) for i in range(len(operands))]
    others = set(result).union(*(set(t) for _, t in operands[1:]))
    x, xs = _drop(ctx, *operands[0], others)
    for (y, ys), keep in zip(operands[1:], needed[1:]):
        y, ys = _drop(ctx, y, ys, keep | set(xs))
        x, xs = _contract(ctx, x, xs, y, ys, keep)
    return [_transpose(ctx, x, xs, result)]

# SPDX-License-Identifier: Apache-2.0
"""What exporters write around attention: masks that no input changes, and keys that several heads share, repeated."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.core import Array, Function, Op, Role, Value
from memc.ir.evaluate import run_op
from memc.ir.module import Module
from memc.ir.op_queries import draws
from memc.ir.ops.shared.op_def import lookup

MOST_OPS = 64
"""Ops of a mask that are computed to see what it is."""

MOST_ELEMENTS = 2**26
"""Elements of each of their values, at most."""

HIDDEN = -1e30
"""What is added to a score to hide a key: from here down the score has no bit left, and its exponential is 0."""


@dataclass(frozen=True)
class Mask:
    """What hides keys: floats that are added, or truths."""

    value: Value
    hides: bool = False
    """Whether a truth says that a key is hidden, and not that it is seen."""
    number: float = -np.inf
    """What stands for the score of a key that a truth hides."""


@dataclass(frozen=True)
class MaskForm:
    """What a mask that no input changes does."""

    diagonal: int | None
    """Query i sees keys up to i + diagonal, and nothing else is added; None: it hides nothing."""


def mask_form(module: Module, trained: Collection[Value], mask: Mask, rows: int, columns: int) -> MaskForm | None:
    """What a mask of scores of `rows` queries and `columns` keys does; None if it depends on inputs or on what is `trained`, or
    does anything else.

    Each query sees a key, so that what hides the others may be finite.
    """
    array = constant_array(module, trained, mask.value)
    if array is None or array.ndim == 0 or array.size == 0:
        return None
    whole = array.reshape(-1, *((1, 1, *array.shape)[-2:]))
    one = whole[0]
    if not np.array_equal(whole, np.broadcast_to(one, whole.shape)):
        return None
    truths = one.dtype == bool
    seen = np.broadcast_to(one ^ mask.hides if truths else one == 0, (rows, columns))
    hidden = ~seen if truths else np.broadcast_to(one <= HIDDEN, (rows, columns))
    if not (seen | hidden).all():
        return None
    if seen.all():
        return MaskForm(None)
    diagonal = int(seen[0].sum()) - 1
    if diagonal < 0 or not np.array_equal(seen, np.tri(rows, columns, k=diagonal, dtype=bool)):
        return None
    return MaskForm(diagonal)


def constant_array(module: Module, trained: Collection[Value], value: Value) -> Array | None:
    """What a value holds in every run, if few and small enough ops of constants alone make it; else None."""
    order: list[Op] = []
    pending, met = [value], {value}
    while pending:
        current = pending.pop()
        if current.type.elements > MOST_ELEMENTS or not _may_be_constant(module, trained, current):
            return None
        if current.op is not None and current.op not in order:
            order.append(current.op)
            if len(order) > MOST_OPS:
                return None
            new = [v for v in current.op.operands if v not in met]
            met.update(new)
            pending += new
    known = {v: module.weights[v.name] for v in met if v.op is None}
    for op in _sorted(order):
        known.update(zip(op.results, run_op(op, [known[v] for v in op.operands])))
    return known[value]


def _may_be_constant(module: Module, trained: Collection[Value], value: Value) -> bool:
    if value.op is None:
        return value.role is Role.WEIGHT and value not in trained and value.name in module.weights
    return lookup(value.op.name) is not None and not draws(value.op)


def _sorted(ops: list[Op]) -> list[Op]:
    """Each op after those that it reads."""
    done: list[Op] = []
    stack = [(op, False) for op in ops]
    while stack:
        op, ready = stack.pop()
        if op in done:
            continue
        if ready:
            done.append(op)
            continue
        stack.append((op, True))
        stack += [(v.op, False) for v in op.operands if v.op is not None]
    return done


def trained_by(value: Value, trained: Collection[Value]) -> Value | None:
    """One of `trained` that decides about a value; None if none does."""
    pending, met = [value], {value}
    while pending:
        current = pending.pop()
        if current in trained:
            return current
        new = [v for v in current.op.operands if v not in met] if current.op is not None else []
        met.update(new)
        pending += new
    return None


def trainable(module: Module, function: Function, frozen: Sequence[str]) -> set[Value]:
    """The stored tensors of floats that are trained unless their names are like one of `frozen`."""
    stored = (p for p in function.params_of(Role.WEIGHT) if p.type.dtype.is_float and p.name not in module.constants)
    return {p for p in stored if not any(fnmatch.fnmatchcase(p.name, pattern) for pattern in frozen)}


def repeated(value: Value) -> Value | None:
    """What a value has the heads of, each several times in a row: reshape(broadcast(reshape(x))); else None."""
    spread = value.op
    if spread is None or spread.name != "reshape":
        return None
    wide = spread.operands[0].op
    if wide is None or wide.name != "broadcast":
        return None
    cut = wide.operands[0].op
    if cut is None or cut.name != "reshape":
        return None
    x, full = cut.operands[0], wide.result.type.shape
    for d in range(value.type.rank - 2):
        shape, times = x.type.shape, full[d + 1] if len(full) == value.type.rank + 1 else 1
        if x.type.rank != value.type.rank or times <= 1:
            return None
        is_cut = cut.result.type.shape == (*shape[: d + 1], 1, *shape[d + 1 :])
        is_wide = full == (*shape[: d + 1], times, *shape[d + 1 :])
        if is_cut and is_wide and value.type.shape == (*shape[:d], shape[d] * times, *shape[d + 1 :]):
            return x
    return None

# SPDX-License-Identifier: Apache-2.0
"""The ops of one joint kernel in an order that its threads may take, but that ops one after another do not.

Half of the threads do all ops before the other half begins. Where threads need nothing of each other, this gives the
same bits; a race shows as other values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core import Array, Op, Value
from ..op_queries import pointwise_operands
from .plain import run_op

Mask = npt.NDArray[np.bool_]


def run_joint(ops: Sequence[Op], read: Callable[[Value], Array], seed: int) -> None:
    """Run the ops on the bytes that `read` shows, by halves of their threads, and the lanes of either half backwards.

    `read` gives a value's array over its planned bytes, which is written to.
    """
    rng = np.random.default_rng(seed)
    plain = _one_after_another(ops, read)
    first = {op: mask for op, mask in zip(ops, _halves(ops, rng))}
    lanes = sorted({op.plan.lane or 0 for op in ops}, reverse=True)
    for half in (first, {op: ~mask for op, mask in first.items()}):
        for lane in lanes:
            for op in ops:
                if (op.plan.lane or 0) == lane:
                    _store(op, half[op], plain, read)


def _one_after_another(ops: Sequence[Op], read: Callable[[Value], Array]) -> dict[Value, Array]:
    """What each op's result is where the ops run one by one, the bytes left as they are."""
    known: dict[Value, Array] = {}
    for op in ops:
        given = [known[v] if v in known else read(v).copy() for v in op.operands]
        known[op.result] = run_op(op, given)[0]
    return known


def _halves(ops: Sequence[Op], rng: np.random.Generator) -> list[Mask]:
    """For each op, the elements that the first half of the threads compute: by rows, or by number and lane."""
    drawn: dict[Any, Mask] = {}
    masks = []
    for op in ops:
        rows = op.plan.rows
        shape = op.result.type.shape
        count = op.result.type.elements if rows is None else math.prod(shape[:rows])
        key = (op.plan.lane, count) if rows is None else ("rows", count)
        if key not in drawn:
            drawn[key] = rng.random(count) < 0.5
        masks.append(np.repeat(drawn[key], op.result.type.elements // max(count, 1)))
    return masks


def _store(op: Op, mask: Mask, plain: dict[Value, Array], read: Callable[[Value], Array]) -> None:
    """Compute an op from the bytes as they are, and keep what the threads of `mask` compute."""
    own = set(pointwise_operands(op))
    given = []
    for number, value in enumerate(op.operands):
        array = read(value).copy()
        if number in own and value in plain:
            # Elements of the other half, which no thread of this one reads, may be anything: also what an op refuses.
            array.reshape(-1)[~mask] = plain[value].reshape(-1)[~mask]
        given.append(array)
    (found,) = run_op(op, given)
    read(op.result).reshape(-1)[mask] = np.asarray(found).reshape(-1)[mask]

# SPDX-License-Identifier: Apache-2.0
"""Which position of a pool's window holds its first largest element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...core import Array, Op
from ...types import DType, TensorType
from .common import flat_index
from .first_largest import ABSENT, Keys
from .op_def import Builder, Expr, Tensor
from .window import Window, padded, positions, source, strided


def first_largest(x: Array, view: Window, shape: Sequence[int], none: int) -> npt.NDArray[np.int64]:
    """The row-major number of the position for each window [N, C, out...]; `none` for one of padding alone or with a NaN."""
    keys = Keys(DType.from_numpy(x.dtype), math.prod(view.kernel))
    values = padded(x, view, 0)
    inside = padded(np.ones((1, 1, *x.shape[2:]), dtype=bool), view, False)
    largest = np.full(tuple(shape), ABSENT, dtype=np.int64)
    for number, position in enumerate(positions(view.kernel)):
        value, counts = (strided(v, view, position, shape[2:]) for v in (values, inside))
        np.maximum(largest, np.where(counts, keys.evaluate(value, number), ABSENT), out=largest)
    return keys.evaluate_position(largest, none)


def lower_first_largest(b: Builder, op: Op, x: Tensor, view: Window) -> Callable[[Sequence[Expr], Expr], Expr]:
    """For a body: what `first_largest` gives, an i64, at (n, c, out...), from the largest key of each window."""
    source_type = op.operands[0].type
    keys = Keys(source_type.dtype, math.prod(view.kernel))

    def body(n: Expr, c: Expr, *at: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            index, guards = source(b, source_type.shape[2:], view, at, taps)
            key = keys.lower(b, x[(n, c, *index)], b.cast(flat_index(taps, view.kernel), DType.I64))
            return b.select(b.logical_and(*guards), key, b.const(ABSENT, DType.I64)) if guards else key

        return b.reduce("max", view.kernel, term)

    largest = b.compute(TensorType(DType.I64, op.result.type.shape), body)
    return lambda at, none: keys.position(b, largest[tuple(at)], none)

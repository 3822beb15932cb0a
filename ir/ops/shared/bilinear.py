# SPDX-License-Identifier: Apache-2.0
"""Bilinear reads at fractional positions, shared by roi_align and deform_conv: for numpy and for lowerings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core import Array
from ...types import DType
from .op_def import Builder, Expr

Corner = tuple[Array, Array, Array]
"""Row, column (valid ones) and weight of one of the four neighbours."""


def corners(y: Array, x: Array, height: int, width: int) -> list[Corner]:
    """The four neighbours of (y, x); those outside the image weigh nothing."""
    y = np.clip(np.where(np.isnan(y), -2, y), -2, height + 1)
    x = np.clip(np.where(np.isnan(x), -2, x), -2, width + 1)
    y0, x0 = np.floor(y), np.floor(x)
    found = []
    for row, wy in ((y0, 1 - (y - y0)), (y0 + 1, y - y0)):
        for column, wx in ((x0, 1 - (x - x0)), (x0 + 1, x - x0)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            r = np.clip(row, 0, height - 1).astype(np.int64)
            c = np.clip(column, 0, width - 1).astype(np.int64)
            found.append((r, c, np.where(inside, wy * wx, 0)))
    return found


def terms(
    b: Builder, read: Callable[[Expr, Expr], Expr], y: Expr, x: Expr, height: int, width: int, dtype: DType
) -> list[Expr]:
    """weight * read(row, column) of the four neighbours of (y, x); those outside the image give zero.

    y and x come from `bounded` by way of a compute stage, so that they are worked out once.
    """
    zero = b.const(0, dtype)
    y0, x0 = b.unary("floor", y), b.unary("floor", x)
    dy, dx = y - y0, x - x0
    row0, column0 = b.cast(y0, DType.I32), b.cast(x0, DType.I32)
    found = []
    for row, wy in ((row0, 1.0 - dy), (row0 + 1, dy)):
        for column, wx in ((column0, 1.0 - dx), (column0 + 1, dx)):
            inside = b.logical_and(row >= 0, row < height, column >= 0, column < width)
            found.append(b.select(inside, read(row, column) * (wy * wx), zero))
    return found


def bounded(b: Builder, at: Expr, extent: int, dtype: DType) -> Expr:
    """A coordinate that far from the image moves to where no neighbour is inside, and so converts to i32 safely."""
    at = b.select(at > -2.0, at, b.const(-2, dtype))
    return b.select(at < extent + 1.0, at, b.const(extent + 1, dtype))

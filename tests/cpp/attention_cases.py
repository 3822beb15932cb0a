# SPDX-License-Identifier: Apache-2.0
"""Attention of many shapes, with what it should give."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from library_groups import Array, make_op

from memc.ir.core import Op
from memc.ir.evaluate import run_op


@dataclass(frozen=True)
class Case:
    """Queries and keys of a shape, and values with `width` columns."""

    q: tuple[int, ...]
    k: tuple[int, ...]
    width: int
    axis: int
    scale: float
    mask: Array | tuple[int, ...] | None = None
    """The mask, or the shape of a random one."""

    def __str__(self) -> str:
        mask = self.mask.shape if isinstance(self.mask, np.ndarray) else self.mask
        return f"{self.q}-{self.k}-{self.width}-{self.axis}-{mask}".replace(" ", "")

    @property
    def operands(self) -> list[Array]:
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))

        def some(*shape: int) -> Array:
            return np.asarray(rng.standard_normal(shape), np.float32)

        found = [some(*self.q), some(*self.k), some(*self.k[:-1], self.width)]
        if isinstance(self.mask, np.ndarray):
            found.append(self.mask)
        elif self.mask is not None:
            found.append(some(*self.mask))
        return found

    def make(self, arrays: list[Array]) -> Op:
        return make_op(arrays, [("attention", tuple(range(len(arrays))), {"axis": self.axis, "scale": self.scale})])

    @property
    def op(self) -> Op:
        return self.make(self.operands)

    def check(self, result: Array, tolerance: float = 1e-5) -> None:
        """Against the reference in f64."""
        wide = [a.astype(np.float64) for a in self.operands]
        (expected,) = run_op(self.make(wide), wide)
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def causal(rows: int, columns: int) -> Array:
    """0 for what a query may see, else -inf."""
    return np.where(np.tri(rows, columns, dtype=bool), np.float32(0), np.float32(-np.inf))


CASES = [
    Case((1, 3, 128, 64), (1, 3, 128, 64), 64, 2, 0.125),  # Keys split among four blocks.
    Case((2, 100, 3, 64), (2, 100, 3, 64), 64, 1, 0.125),  # Heads inside.
    Case((37, 2, 3, 64), (50, 2, 3, 64), 32, 0, 0.3),
    Case((3, 37, 32), (3, 197, 32), 32, 1, 0.2, (37, 197)),
    Case((70, 80), (33, 80), 80, 0, 0.1, (1, 33)),
    Case((2, 2, 20, 128), (2, 2, 45, 128), 100, 2, 0.1, (2, 1, 1, 45)),
    Case((2, 3, 9, 10), (2, 3, 11, 10), 7, 2, 0.3, (2, 3, 9, 11)),  # Nothing is a multiple of four.
    Case((2, 9, 3, 30), (2, 70, 3, 30), 64, 1, 0.3, (1, 3, 1, 70)),
    Case((4, 65, 64), (4, 65, 64), 64, 1, 0.125, causal(65, 65)),
    Case((128, 2, 33, 16), (128, 2, 5, 16), 8, 2, 0.25, (128, 1, 33, 1)),  # Enough for the largest tiles.
    Case((1, 1, 1), (1, 1, 1), 1, 1, 1.0),
]

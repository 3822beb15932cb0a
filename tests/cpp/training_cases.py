# SPDX-License-Identifier: Apache-2.0
"""Attention in training of many shapes, with what it should give."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from attention_cases import causal
from library_groups import Array

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value
from memc.ir.evaluate import run_op
from memc.ir.module import Module
from memc.ir.types import DType, TensorType

LANES_AND_TILES = 70
"""Neither a multiple of a register's floats nor of a tile's rows."""


@dataclass(frozen=True)
class Training:
    """Queries and keys of a shape, values with `width` columns, and a mask, or the shape of a random one."""

    q: tuple[int, ...]
    k: tuple[int, ...]
    width: int
    axis: int
    mask: Array | tuple[int, ...] | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    dtype: DType = DType.F32
    wide_mask: bool = False
    """Whether a mask of floats stays f32."""

    def __str__(self) -> str:
        mask = f"{self.mask.dtype}" if isinstance(self.mask, np.ndarray) else self.mask
        return f"{self.q}-{self.k}-{self.width}-{self.axis}-{mask}-{self.attrs}".replace(" ", "")

    @property
    def operands(self) -> list[Array]:
        """q, k, v, maybe a mask, the seed of a dropout if there is one, and g."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        shapes = [self.q, self.k, (*self.k[:-1], self.width), (*self.q[:-1], self.width)]
        q, k, v, g = (np.asarray(rng.standard_normal(shape), self.dtype.numpy) for shape in shapes)
        seed = [np.array(7, np.int64)] if "ratio" in self.attrs else []
        if self.mask is None:
            return [q, k, v, *seed, g]
        mask = self.mask if isinstance(self.mask, np.ndarray) else rng.standard_normal(self.mask)
        kept = mask.dtype == bool or self.wide_mask
        return [q, k, v, mask if kept else mask.astype(self.dtype.numpy), *seed, g]

    def op(self, name: str, arrays: list[Array]) -> Op:
        attrs = {"axis": self.axis, "scale": self.q[-1] ** -0.5, **self.attrs}
        params = [Value(f"x{n}", TensorType(DType.from_numpy(a.dtype), a.shape)) for n, a in enumerate(arrays)]
        function = Function(list(params))
        return IRBuilder(Module([function]), function, function.ops).multi(name, params, **attrs)

    def of(self, name: str, arrays: list[Array]) -> list[Array]:
        """What an op gives by its reference."""
        return list(run_op(self.op(name, arrays), arrays))

    def of_mask(self, given: list[Array]) -> Array:
        """The gradient in the mask, in f64, of what attention_grad is given."""
        wide = [x if x.dtype == np.int64 else x.astype(np.float64) for x in given]
        return self.of("attention_mask_grad", wide)[0]

    def expected(self) -> tuple[list[Array], list[Array]]:
        """Of f64: result and log-sum-exp; and the gradients in q, k and v."""
        wide = [x if x.dtype in (bool, np.int64) else x.astype(np.float64) for x in self.operands]
        forward = self.of("attention_training", wide[:-1])
        given = [*wide[:-1], forward[1], (wide[-1] * forward[0]).sum(axis=-1), wide[-1]]
        return forward, self.of("attention_grad", given)


def seen(rows: int, columns: int) -> Array:
    """A mask of bool in which each query sees its first key, at least."""
    found = np.random.default_rng(8).random((rows, columns)) < 0.7
    found[:, 0] = True
    return found


N = LANES_AND_TILES
CASES = [
    Training((2, 3, 128, 64), (2, 3, 128, 64), 64, 2),
    Training((2, N, 3, 64), (2, 2 * N, 3, 64), 64, 1, None, {"diagonal": 0}),
    Training((2, N, 3, 64), (2, 2 * N, 3, 64), 64, 1, None, {"diagonal": N}),
    Training((N, 2, 3, 20), (3, 2, 3, 20), 9, 0, (2, 1, 1, 3)),
    Training((2, 6, 130, 33), (2, 2, N, 33), 17, 2, (6, 130, N)),  # Three heads of q to each of k.
    Training((N, 4, 2, 16), (130, 2, 1, 16), 16, 0, seen(N, 130)),  # Heads shared along two axes.
    Training((4, N, 256), (4, N, 256), 256, 1, causal(N, N)),
    Training((2, 65, 5), (2, 1, 5), 130, 1),
    Training((1, 1), (1, 1), 1, 0),
    Training((2, 1, 3, 8), (2, 130, 3, 8), 8, 1, None, {"diagonal": 129}),
]


def hidden_rows() -> Training:
    """A mask with a row of only -inf, one of some -inf, one with inf and one with nan."""
    mask = np.zeros((40, 130), np.float32)
    mask[0] = -np.inf
    mask[1, :100] = -np.inf
    mask[2, 3] = np.inf
    mask[3, 129] = np.nan
    return Training((2, 40, 8), (2, 130, 8), 8, 1, mask)


def no_key_beyond() -> Training:
    """A row that sees no key makes the gradients of all keys of its head nan, tiles beyond the diagonal too."""
    mask = np.ones((2, 70, 130), bool)
    mask[0, 5] = False
    return Training((2, 70, 8), (2, 130, 8), 8, 1, mask, {"diagonal": 0})


DROPPED = {"ratio": 0.3, "stream": 2}
WINDOWED = {"diagonal": 0, "window": 40}
FORMS = [
    Training((2, N, 3, 64), (2, N, 3, 64), 64, 1, None, WINDOWED),
    Training((3, 200, 8), (3, 200, 8), 8, 1, None, {"diagonal": 0, "window": 1}),
    Training((3, N, 8), (3, 200, 8), 8, 1, (3, 1, 200), {"diagonal": 130, "window": 65}),
    Training((2, 6, 130, 33), (2, 2, N, 33), 17, 2, (6, 130, N), {"cap": 1.5}),
    Training((2, 3, 20, 80), (2, 3, 130, 80), 96, 2, (3, 20, 1), {"cap": 0.5, "blind": "zero"}),
    Training((2, N, 3, 16), (2, 2 * N, 3, 16), 16, 1, None, DROPPED),
    Training((2, 6, 130, 20), (2, 2, 130, 20), 20, 2, (1, 1, 130, 130), {**WINDOWED, **DROPPED, "cap": 2.0}),
]
"""Windows, caps, dropout and masks that are spread out."""


def blind_rows() -> Training:
    """Rows that see no key, which are zero."""
    mask = np.ones((2, 70, 130), bool)
    mask[0, 5] = mask[1] = False
    return Training((2, 70, 8), (2, 130, 8), 8, 1, mask, {"diagonal": 0, "blind": "zero"})

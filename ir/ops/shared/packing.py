# SPDX-License-Identifier: Apache-2.0
"""How weights are laid out for the library kernels that read them in panels (`cpp/kernels/panel_product.h`).

The elements are those of the plain tensor in another order, so that a packed weight takes no more bytes. The layouts do not
depend on the machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Union

import numpy as np

from ...core import Array

PANEL_ROWS = 6
PANEL_COLUMNS = 16


@dataclass(frozen=True)
class RowPanels:
    """A stack of `matrices` left factors [M, K]: of each, for every 6 rows (fewer at the end), K times one column of them."""

    matrices: int = 1

    def __str__(self) -> str:
        return f"row-panels[{self.matrices}]"

    def pack(self, data: Array) -> Array:
        """The elements of `data`, [matrices * M, K...], in their order in memory."""
        rows = data.shape[0] // self.matrices
        stack = data.reshape(self.matrices, rows, math.prod(data.shape[1:]))
        starts = range(0, rows, PANEL_ROWS)
        return np.concatenate([matrix[s : s + PANEL_ROWS].T.reshape(-1) for matrix in stack for s in starts])


@dataclass(frozen=True)
class ColumnPanels:
    """A right factor [K, N], N a multiple of 16: for every 16 columns, K times one row of them."""

    transposed: bool = False
    """Whether the plain tensor is [N, K]."""

    def __str__(self) -> str:
        return "column-panels" + ("[transposed]" if self.transposed else "")

    def pack(self, data: Array) -> Array:
        """The elements of `data` in their order in memory."""
        matrix = data.T if self.transposed else data
        depth, columns = matrix.shape
        panels = matrix.reshape(depth, columns // PANEL_COLUMNS, PANEL_COLUMNS)
        return np.asarray(panels.transpose(1, 0, 2).reshape(-1))


Packing = Union[RowPanels, ColumnPanels]

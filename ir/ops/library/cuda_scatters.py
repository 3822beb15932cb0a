# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels of scatters, and of rows added up by index (`scatters.cu`).

Sizes here and in `cpp/cuda/cuda_scatters.cc` must agree; `tests/cpp` holds them against each other.
"""

from __future__ import annotations

from memc.ir.core import Op
from memc.ir.ops.library.cpu_scatters import SHORT, gather_scalars, scatter_scalars, takes_scatter, updates_of
from memc.ir.ops.library.cuda_sort_scan import ROOM, TILE
from memc.ir.ops.shared.common import int_attr
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.sizes import align

PART = 64
"""Sorted updates, or parts of these, that are combined together where they go to one place."""
MOST_AXES = 8
MOST = 2**31 - 1
"""Updates and places: they are counted in 32 bits."""
FEW_ROWS = 16
"""Up to so many, most indices name a row that many others name too: its sum is better shared than made in their order."""


def _room(count: int, columns: int) -> tuple[int, int]:
    """Bytes for `count` sorted updates, and for what parts of them amount to in so many columns of all tables."""
    if not count:
        return 0, 0
    room = align(8 * count, ROOM) + align((4 if count <= TILE else 8) * count, ROOM)
    room += align(8 * columns * (count // PART), ROOM) + align(8 * columns * (count // PART**2), ROOM)
    return room, room


def _scatter_workspace(op: Op) -> tuple[int, int]:
    updates = op.operands[-1].type
    count = updates_of(op)[0] if op.name.startswith("scatter_nd") else updates.elements
    reduction = op.attrs["reduction"]
    alone = reduction == "none" or (reduction == "mul" and updates.dtype.is_float)
    return _room(count, 0 if alone or not count else updates.elements // count)


def _takes_scatter(op: Op) -> bool:
    """Whether the updates are many, and can be counted."""
    indices, result = op.operands[-2].type, op.result.type
    axes = indices.shape[-1] if op.name.startswith("scatter_nd") else result.rank
    return takes_scatter(op) and axes <= MOST_AXES and max(indices.elements, result.elements) <= MOST


def _columns(op: Op) -> int:
    """Elements that a row of the result has, of all tables."""
    return op.result.type.elements // op.result.type.shape[int_attr(op.attrs, "axis")]


def _takes_gather(op: Op) -> bool:
    extent, count = op.result.type.shape[int_attr(op.attrs, "axis")], op.operands[0].type.elements
    return len(op.operands) == 2 and FEW_ROWS < extent <= MOST and SHORT < count <= MOST and _columns(op) > 0


def _scatter(name: str, whole: bool) -> LibraryKernel:
    return LibraryKernel(
        target="cuda",
        symbol=f"memc.cuda.{name}",
        supports=_takes_scatter,
        scalars=scatter_scalars,
        workspace=_scatter_workspace,
        whole=whole,
    )


SCATTER_ELEMENTS_CUDA = _scatter("scatter_elements", True)
SCATTER_ND_CUDA = _scatter("scatter_nd", True)
ELEMENTS_COMBINE_CUDA = _scatter("scatter_elements_combine", False)
ND_COMBINE_CUDA = _scatter("scatter_nd_combine", False)

GATHER_GRAD_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.gather_grad",
    supports=_takes_gather,
    scalars=gather_scalars,
    workspace=lambda op: _room(op.operands[0].type.elements, _columns(op)),
)
"""Rows added up by index: sorted by it, those of one row beside each other."""

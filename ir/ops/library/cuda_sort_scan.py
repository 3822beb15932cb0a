# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels that go along the lines of one axis (`sorts.cu`, `scans.cu`): sorts, running sums and products;
and non_max_suppression (`suppression.cu`).

Sizes here and in `cpp/cuda/cuda_sorts.cc` and `cuda_scans.cc` must agree; `tests/cpp` holds them against each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Op
from memc.ir.ops.library.cpu_sort_scan import (
    SHORT,
    lines_of,
    product_scalars,
    short_enough,
    sort_scalars,
    suppression_scalars,
)
from memc.ir.ops.shared.axes import axis_of
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.sizes import align

TILE = 2048
"""Entries that a block sorts."""
ROOM = 64
"""What the bytes for lines are a multiple of."""
THREADS = 256
EACH = 8
"""Elements of a thread at a time, in scans."""
WIDEST = 32
"""The most lines of a block, in scans."""
ENOUGH_BLOCKS = 512
BLOCKS = 1024
MOST_PARTS = 1024
CANDIDATES = 512
"""Boxes of a tile, in suppressions."""


def _after_pass(total: int, run: int, count: int) -> tuple[int, int, bool]:
    """The entries that a pass of a sort leaves of `total` in sorted runs of `run`, of which `count` are wanted; their runs,
    and whether it is the last."""
    whole = 2 * run if run > TILE // 4 else TILE
    runs = -(-total // whole)
    kept = min(whole, count)
    return (runs - 1) * kept + min(total - (runs - 1) * whole, kept), kept, runs == 1


def _sort_workspace(op: Op, count: int) -> tuple[int, int]:
    """Bytes for an eighth of the outermost parts of the operand, and for all of them; at least for one. Of whole sorts the
    results have room for one of the two arrays of entries."""
    source = op.operands[0].type
    lines, extent, apart = lines_of(op)
    if not lines or not extent or not count:
        return 0, 0
    first, run, last = _after_pass(extent, 0, count)
    if last:
        return 0, 0
    own = apart * (4 if source.dtype.itemsize == 8 else 8)
    room = align(own * first, ROOM)
    second, _, last = _after_pass(first, run, count)
    if count < extent and not last:
        room += align(own * second, ROOM)
    outer = lines // apart
    return room * max(outer // 8, 1), room * outer


def _wanted(op: Op) -> int:
    k = op.attrs["k"]
    assert isinstance(k, int)
    return k


def _scan_workspace(op: Op) -> tuple[int, int]:
    """Bytes for what the parts of long lines amount to."""
    type = op.result.type
    lines, extent, apart = lines_of(op)
    if not lines or not extent:
        return 0, 0
    wide = min(1 << (apart - 1).bit_length(), WIDEST)
    chunks = -(-extent // (THREADS // wide * EACH))
    blocks = lines // apart * -(-apart // wide)
    parts = 1 if blocks >= ENOUGH_BLOCKS else min(-(-BLOCKS // blocks), MOST_PARTS, chunks)
    parts = -(-chunks // -(-chunks // parts))
    size = 32 if op.name == "cumprod" and type.dtype.is_float else 8
    room = lines * parts * size if parts > 1 else 0
    return room, room


def _long(op: Op) -> bool:
    return SHORT < lines_of(op)[1] and short_enough(op)


def _scan(name: str) -> LibraryKernel:
    return LibraryKernel(
        target="cuda",
        symbol=f"memc.cuda.{name}",
        supports=_long,
        scalars=product_scalars,
        workspace=_scan_workspace,
        whole=True,
    )


def _rank_scalars(op: Op) -> Sequence[int | float]:
    return (axis_of(op.attrs, op.operands[0].type),)


def _suppression_workspace(op: Op) -> tuple[int, int]:
    """Five f32 of each chosen box, and of a tile's candidates which before them they overlap."""
    batches, classes, most = op.result.type.shape
    owners, candidates = batches * classes, op.operands[1].type.shape[2]
    if not op.result.type.elements or not candidates:
        return 0, 0
    tile = min(CANDIDATES, align(candidates, 32))
    room = align(20 * owners * most, ROOM) + align(4 * owners, ROOM)
    room += align(64 * owners * tile, ROOM) + align(owners * tile, ROOM)
    return room, room


SUPPRESSION_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.non_max_suppression",
    supports=lambda op: op.operands[0].type.elements > 0 and op.result.type.elements > 0,
    scalars=suppression_scalars,
    workspace=_suppression_workspace,
)
"""Tiles of candidates are compared with all chosen boxes and with each other, and then chosen from one after another."""

TOP_K_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.top_k",
    supports=short_enough,
    scalars=lambda op: sort_scalars(op, "largest"),
    workspace=lambda op: _sort_workspace(op, _wanted(op)),
    whole=True,
)
"""The greatest or least elements of lines: sorted tiles are merged, of which no more than the wanted ones are kept."""

SORT_RANKS_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.sort_ranks",
    supports=short_enough,
    scalars=lambda op: sort_scalars(op, "descending"),
    workspace=lambda op: _sort_workspace(op, lines_of(op)[1]),
    whole=True,
)
"""The same, of all elements of a line."""

RANK_POSITIONS_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.rank_positions",
    supports=lambda op: True,
    scalars=_rank_scalars,
    workspace=None,
    whole=True,
)
"""A permutation's inverse."""

CUMSUM_CUDA = _scan("cumsum")
"""Running sums, those of f32 in f64: blocks take parts of lines, and add what the parts before amount to."""

CUMPROD_CUDA = _scan("cumprod")
"""The same of products, which leave no range that the type has."""

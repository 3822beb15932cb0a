# SPDX-License-Identifier: Apache-2.0
"""The CPU library kernels that go along the lines of one axis: sorts and running products; and
non_max_suppression, whose candidates are such lines.

Sizes here and in `cpp/kernels/sorts.h` and `non_max_suppression.h` must agree; `tests/cpp` holds them against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import Op
from memc.ir.ops.shared.axes import axis_of
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.sizes import align
from memc.ir.types import DType

FEW = 256
"""Up to so many wanted elements of a line are sorted on a thread's stack."""
LONGEST_LINE = 2**31 - 1
"""Elements of the longest line that is sorted: places on it are counted in 32 bits."""
ROOM = 64
"""What the bytes for one line are a multiple of."""
SHORT = 32
"""Running sums of lines up to this length stay generated kernels, which may be fused."""
AT_ONCE = 16
"""The most lines that are given room to be sorted at the same time."""


def lines_of(op: Op) -> tuple[int, int, int]:
    """Lines, elements of each, and how far these are apart."""
    source = op.operands[0].type
    axis = axis_of(op.attrs, source)
    extent = source.shape[axis]
    return source.elements // max(extent, 1), extent, math.prod(source.shape[axis + 1 :])


def number_of(dtype: DType) -> int:
    """How the bits of elements are to be read: 0 unsigned, 1 signed, 2 float, 3 brain float."""
    if dtype is DType.BF16:
        return 3
    return 2 if dtype.is_float else 1 if dtype.is_signed else 0


def short_enough(op: Op) -> bool:
    """Whether places on a line can be counted in 32 bits."""
    return lines_of(op)[1] <= LONGEST_LINE


def _of_lines(count: int, room: int) -> tuple[int, int]:
    """Bytes for an eighth of the lines, and for all of them; at least one, at most `AT_ONCE`."""
    room = align(room, ROOM)
    return room * min(max(count // 8, 1), AT_ONCE), room * min(count, AT_ONCE)


def _top_k_workspace(op: Op) -> tuple[int, int]:
    """None for lines whose elements are next to each other: those are sorted in the bytes of the results."""
    count, extent, apart = lines_of(op)
    k, size = op.attrs["k"], op.operands[0].type.dtype.itemsize
    assert isinstance(k, int)
    if apart == 1 or k <= FEW or not count:
        return 0, 0
    return _of_lines(count, (8 + size) * k + size * extent)


def _ranks_workspace(op: Op) -> tuple[int, int]:
    count, extent, apart = lines_of(op)
    size = op.operands[0].type.dtype.itemsize
    if extent <= FEW or not count:
        return 0, 0
    return _of_lines(count, (size if apart == 1 else 8 + 2 * size) * extent)


def sort_scalars(op: Op, descending: str) -> Sequence[int | float]:
    """Axis, number, and the attribute that says whether the greatest come first."""
    source = op.operands[0].type
    return axis_of(op.attrs, source), number_of(source.dtype), int(bool(op.attrs[descending]))


def product_scalars(op: Op) -> Sequence[int | float]:
    """Axis, and whether an element's own value is left out, and it goes from the end."""
    return (axis_of(op.attrs, op.result.type), *(int(bool(op.attrs[name])) for name in ("exclusive", "reverse")))


def suppression_scalars(op: Op) -> Sequence[int | float]:
    """Whether boxes are a middle and sides."""
    return (int(bool(op.attrs["center"])),)


def _suppression_workspace(op: Op) -> tuple[int, int]:
    """Five f32 of each chosen box, of one class and of several."""
    batches, classes, most = op.result.type.shape
    if not op.result.type.elements:
        return 0, 0
    room = align(20 * most, ROOM)
    return room, room * min(batches * classes, AT_ONCE)


TOP_K_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.top_k",
    supports=short_enough,
    scalars=lambda op: sort_scalars(op, "largest"),
    workspace=_top_k_workspace,
    whole=True,
)
"""The greatest or least elements of lines, by comparison where few are wanted, else by the digits of their keys, in time linear in the elements."""

SORT_RANKS_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.sort_ranks",
    supports=short_enough,
    scalars=lambda op: sort_scalars(op, "descending"),
    workspace=_ranks_workspace,
)
"""The same, of all elements of a line."""

RANK_POSITIONS_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.rank_positions",
    supports=short_enough,
    scalars=lambda op: (axis_of(op.attrs, op.operands[0].type),),
    workspace=None,
)
"""A permutation's inverse."""

CUMSUM_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.cumsum",
    supports=lambda op: lines_of(op)[1] > SHORT,
    scalars=product_scalars,
    workspace=None,
    whole=True,
)
"""Running sums, those of floats in f64: of blocks, and then inside of each from what those before amount to."""

CUMPROD_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.cumprod",
    supports=lambda op: True,
    scalars=product_scalars,
    workspace=None,
)
"""Running products, each made of the one before."""

SUPPRESSION_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.non_max_suppression",
    supports=lambda op: op.operands[0].type.elements > 0 and op.operands[1].type.elements > 0,
    scalars=suppression_scalars,
    workspace=_suppression_workspace,
)
"""Each candidate is compared with many chosen boxes at a time, and many candidates at a time on several threads."""

# SPDX-License-Identifier: Apache-2.0
"""How the operands of attention lie: as transposes of something, with heads around positions, each head once."""

from __future__ import annotations

from dataclasses import dataclass

from memc.ir.core import UNPLANNED, Op, Value
from memc.ir.ops.shared.attention_parts import heads_first
from memc.ir.ops.shared.common import ints_attr
from memc.passes.kernels.attention_forms import repeated

ATTRIBUTES = {
    "matmul": {"transpose_a", "transpose_b"},
    "softmax": {"axis"},
    "transpose": {"perm"},
    "reshape": {"shape"},
}
"""What ops of the pattern may say. Those with a plan, such as recomputations, stay as they are."""


@dataclass(frozen=True)
class Transposed:
    """[heads..., positions, columns], as a transpose of `source`."""

    source: Value
    perm: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.source.type.shape[d] for d in self.perm)


@dataclass(frozen=True)
class Heads:
    """An operand of which no transpose is needed."""

    source: Value
    shape: tuple[int, ...]
    """What `source` is to be reshaped to."""
    axis: int
    """The axis of the positions in that shape."""


def is_plain(op: Op, name: str) -> bool:
    return op.name == name and op.plan == UNPLANNED and set(op.attrs) <= ATTRIBUTES.get(name, set())


def transposed(value: Value, crossed: bool = False) -> Transposed:
    """A value, or with `crossed` its last two axes exchanged, as a transpose of what it was made of."""
    source, perm = value, tuple(range(value.type.rank))
    if value.op is not None and is_plain(value.op, "transpose"):
        source, perm = value.op.operands[0], ints_attr(value.op.attrs, "perm")
    return Transposed(source, (*perm[:-2], perm[-1], perm[-2]) if crossed else perm)


def once(part: Transposed) -> Transposed | None:
    """The part before its heads were repeated; None if they were not, or something brought them elsewhere since."""
    source, heads = repeated(part.source), len(part.perm) - 2
    if source is None or part.perm[:heads] != tuple(range(heads)):
        return None
    inner = transposed(source)
    return Transposed(inner.source, tuple(inner.perm[d] for d in part.perm))


def heads_around(part: Transposed) -> Heads | None:
    """The operand as heads around positions; None if it is another transpose than one of those.

    Positions that come before all heads may be brought behind them before the heads' axis is cut.
    """
    source, rank = part.source, len(part.perm)
    cut = source.op
    if part.perm == tuple(range(rank)) and cut is not None and is_plain(cut, "reshape"):
        inner = cut.operands[0]
        moved = transposed(inner)
        *heads, positions, columns = source.type.shape
        whole = inner.type.rank > 2 and moved.perm == heads_first(inner.type.rank, 0)
        if whole and inner.type.shape[-2:] == (positions, columns):
            return Heads(moved.source, (positions, *heads, columns), 0)
    axis = part.perm[-2]
    return Heads(source, source.type.shape, axis) if part.perm == heads_first(rank, axis) else None

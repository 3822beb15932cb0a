# SPDX-License-Identifier: Apache-2.0
"""recognize-attention: products around a softmax become one op, whose kernel stores no scores.

    softmax(scale q k^T + mask) v     attention(q, k, v, mask) {scale, axis}

The factor may be at the scores, at q or at k; the mask may be missing. Transposes that bring the heads before the
positions, and those that bring them back, are left out: `axis` says where the positions are.

Only what the target's library kernel takes is recognized, where nothing else reads the scores. `decompose` leaves such
an op alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Optional

from memc.ir.build import IRBuilder
from memc.ir.checked_options import Alignment
from memc.ir.core import UNPLANNED, Function, Op, Value, fresh_names, replace_all_uses
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.ops.shared.attention_parts import heads_first
from memc.ir.ops.shared.common import ints_attr
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import LibraryTarget, Pass, alignment_of, library_target
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.rewrite.recognize import constant_number

ATTRIBUTES = {
    "matmul": {"transpose_a", "transpose_b"},
    "softmax": {"axis"},
    "transpose": {"perm"},
    "reshape": {"shape"},
}
"""What ops of the pattern may say. Those with a plan, such as recomputations, stay as they are."""


@dataclass(frozen=True)
class _Transposed:
    """[heads..., positions, columns], as a transpose of `source`."""

    source: Value
    perm: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.source.type.shape[d] for d in self.perm)


@dataclass(frozen=True)
class _Pattern:
    """Attention as it was found; `result` is [heads..., positions, columns] too."""

    q: _Transposed
    k: _Transposed
    v: _Transposed
    mask: Value | None
    scale: float
    result: Value


@dataclass(frozen=True)
class _Heads:
    """An operand of which no transpose is needed."""

    source: Value
    shape: tuple[int, ...]
    """What `source` is to be reshaped to."""
    axis: int
    """The axis of the positions in that shape."""


def recognize_attention(module: Module, function: Function, target: str = "cuda", alignment: int = ALIGNMENT) -> None:
    """Put attention in the place of every pattern that a library kernel of `target` can compute, unless that raises the peak
    of the function's order of ops."""
    if not any(op.name == "softmax" for op in function.ops):
        return
    before, peak = Snapshot.of(module, function), planned_peak(function, alignment)
    if not _Recognizer(module, function, target).run():
        return
    remove_dead(module, function)
    if planned_peak(function, alignment) > peak:
        before.restore()


class _Recognizer:
    """Looks for the pattern in one function, and rewrites it."""

    def __init__(self, module: Module, function: Function, target: str) -> None:
        self.module = module
        self.function = function
        self.target = target
        self.alone: Collection[Value] = function.read_once()
        self.uses: Mapping[Value, Sequence[Op]] = function.uses()
        self.names = fresh_names(v.name for v in function.values())

    def run(self) -> bool:
        """Whether anything was found."""
        replaced: dict[Value, Value] = {}
        ops: list[Op] = []
        for op in self.function.ops:
            ops.append(op)
            found = self.match(op)
            if found is not None:
                ops += self.write(found, replaced, op.location)
        self.function.ops = ops
        replace_all_uses(self.function, replaced)
        return bool(replaced)

    def match(self, op: Op) -> _Pattern | None:
        """The pattern whose last product is `op`."""
        if not _is(op, "matmul") or any(op.attrs.values()):
            return None
        weights, v = op.operands
        softmax = self.maker(weights, "softmax")
        if softmax is None or softmax.attrs["axis"] != weights.type.rank - 1:
            return None
        for scores, mask in self.masked(softmax.operands[0]):
            inner, scale = self.scaled(scores, alone=True)
            product = self.maker(inner, "matmul")
            if product is None or product.attrs.get("transpose_a"):
                continue
            (q, of_q), (k, of_k) = (self.scaled(x) for x in product.operands)
            crossed = not product.attrs.get("transpose_b", False)
            operands = _transposed(q), _transposed(k, crossed), _transposed(v)
            types = {x.type.dtype for x in (q, k, v, scores)}
            if len({x.shape[:-2] for x in operands}) == len(types) == 1:
                return _Pattern(*operands, mask, scale * of_q * of_k, op.result)
        return None

    def masked(self, scores: Value) -> list[tuple[Value, Value | None]]:
        """Scores and mask of a sum, either way round, or the scores alone."""
        add = self.maker(scores, "add")
        if add is None:
            return [(scores, None)]
        a, b = add.operands
        return [(x, mask) for x, mask in ((a, b), (b, a)) if x.type == scores.type]

    def maker(self, value: Value, name: str) -> Op | None:
        """The op that makes a value for one reader, if it is of that name and says nothing more than it must."""
        op = value.op
        return op if op is not None and value in self.alone and _is(op, name) else None

    def scaled(self, value: Value, alone: bool = False) -> tuple[Value, float]:
        """What a value is a multiple of, and the factor. `alone`: through values with one reader only."""
        factor = 1.0
        while (
            value.op is not None
            and not value.op.attrs
            and value.op.plan == UNPLANNED
            and not (alone and value not in self.alone)
        ):
            op = value.op
            pairs = {"mul": [(0, 1), (1, 0)], "div": [(0, 1)]}.get(op.name, [])
            known = [(op.operands[x], constant_number(self.module, op.operands[n])) for x, n in pairs]
            fitting = [(x, n) for x, n in known if n and x.type == value.type]
            if not fitting:
                break
            value, number = fitting[0]
            factor = factor * number if op.name == "mul" else factor / number
        return value, factor

    def write(self, found: _Pattern, replaced: dict[Value, Value], location: str | None) -> list[Op]:
        """Attention in the place of its last product, or of the transpose that follows; nothing where there is no kernel."""
        b = IRBuilder(self.module, self.function, [], self.names, location)
        parts = (found.q, found.k, found.v)
        result, axis = found.result, found.result.type.rank - 2
        heads = [x for x in map(_heads, parts) if x is not None]
        back = self.back(result, heads[0].axis) if len(heads) == 3 and len({x.axis for x in heads}) == 1 else None
        if back is not None:
            result, axis = back, heads[0].axis
            operands = [_reshaped(b, x.source, x.shape) for x in heads]
        else:
            operands = [_moved(b, x.source, x.perm) for x in parts]
        if found.mask is not None:
            operands.append(found.mask)
        made = b.multi("attention", operands, axis=axis, scale=found.scale)
        kernel = library_kernel(made, self.target)
        if kernel is None:
            return []
        made.plan = replace(made.plan, library_kernel=kernel.symbol)
        replaced[result] = made.result
        return b.ops

    def back(self, result: Value, axis: int) -> Value | None:
        """What has the positions at `axis` again: the result, or the transpose that alone reads it."""
        rank = result.type.rank
        if axis == rank - 2:
            return result
        perm = heads_first(rank, axis)
        if result not in self.alone:
            return None
        (reader,) = self.uses[result]
        if not _is(reader, "transpose"):
            return None
        return reader.result if reader.attrs["perm"] == tuple(perm.index(d) for d in range(rank)) else None


def _is(op: Op, name: str) -> bool:
    return op.name == name and op.plan == UNPLANNED and set(op.attrs) <= ATTRIBUTES.get(name, set())


def _transposed(value: Value, crossed: bool = False) -> _Transposed:
    """A value, or with `crossed` its last two axes exchanged, as a transpose of what it was made of."""
    source, perm = value, tuple(range(value.type.rank))
    if value.op is not None and _is(value.op, "transpose"):
        source, perm = value.op.operands[0], ints_attr(value.op.attrs, "perm")
    return _Transposed(source, (*perm[:-2], perm[-1], perm[-2]) if crossed else perm)


def _heads(part: _Transposed) -> _Heads | None:
    """The operand as heads around positions; None if it is another transpose than one of those.

    Positions that come before all heads may be brought behind them before the heads' axis is cut.
    """
    source, rank = part.source, len(part.perm)
    cut = source.op
    if part.perm == tuple(range(rank)) and cut is not None and _is(cut, "reshape"):
        inner = cut.operands[0]
        moved = _transposed(inner)
        *heads, positions, columns = source.type.shape
        whole = inner.type.rank > 2 and moved.perm == heads_first(inner.type.rank, 0)
        if whole and inner.type.shape[-2:] == (positions, columns):
            return _Heads(moved.source, (positions, *heads, columns), 0)
    axis = part.perm[-2]
    return _Heads(source, source.type.shape, axis) if part.perm == heads_first(rank, axis) else None


def _reshaped(b: IRBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.type.shape == shape else b.op("reshape", [value], shape=shape)


def _moved(b: IRBuilder, value: Value, perm: tuple[int, ...]) -> Value:
    return value if perm == tuple(range(len(perm))) else b.op("transpose", [value], perm=perm)


@dataclass(frozen=True)
class RecognizeAttention(Pass):
    """Attention as one op, where the target has a kernel for it. Never raises the peak."""

    name: ClassVar[str] = "recognize-attention"
    target: Optional[LibraryTarget] = None
    alignment: Optional[Alignment] = None

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                recognize_attention(
                    module, function, library_target(self.target, module), alignment_of(self.alignment, module)
                )

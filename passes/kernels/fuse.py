# SPDX-License-Identifier: Apache-2.0
"""fuse: chains of ops become one kernel, so that the values between them need no memory.

A group is a tree of ops around one result: at most one reduction (also conv, matmul, pooling), all else elementwise
or data movement. After the reduction only elementwise ops of its result's shape follow; before it anything whose
elements the reduction reads about once. A group takes the place of its last op, so an operand that was read earlier
lives on until there: groups that raise the peak because of that are dissolved again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Optional

from memc.ir.checked_options import Alignment, Count
from memc.ir.core import Function, Op, Value
from memc.ir.liveness import ALIGNMENT
from memc.ir.module import Module
from memc.ir.op_queries import flops, has, slice_offsets, view_offset
from memc.ir.ops.shared.casts import HALF
from memc.ir.ops.shared.op_def import Compute, Trait, lookup
from memc.ir.snapshot import Snapshot, is_raw
from memc.ir.types import DType
from memc.passes.base import LibraryTarget, Pass, alignment_of, library_target
from memc.passes.kernels.fused_groups import Group, rewrite
from memc.passes.kernels.select_kernels import library_kernel
from memc.passes.placement.alias_plan import plan_aliases, planned_peak

MAX_ROUNDS = 6
EXPENSIVE = frozenset(
    "exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow sigmoid elu gelu silu "
    "softplus".split()
)
"""Elementwise ops that are not computed again for each of several readers of one element."""

NAMES = {
    **dict.fromkeys(("abs", "hard_sigmoid", "leaky_relu", "select", "sign"), 3),
    **dict.fromkeys(("div", "shift_left", "shift_right"), 4),
    **dict.fromkeys(("mod", "fmod"), 6),
    "erf": 21,
    "binary_cross_entropy": 2,
    "binary_cross_entropy_with_logits": 14,
    "gelu": 24,
    **dict.fromkeys(("exp", "sigmoid"), 24),
    **dict.fromkeys(("elu", "silu"), 26),
    "softplus": 25,
}
"""How often an elementwise op's kernel names an operand, where that is more than once."""

INTEGER_POWER = 193
"""As `NAMES`, for `pow` of integers, which squares and multiplies six times."""

MAX_EXPANSION = 4096
"""Most reads in a group's kernel if every binding were written out: TVM takes time in proportion, although it never
does write them out."""

SMALL = 1 / 64
"""The share of a value's bytes that a group may keep alive in addition to save the value, such as the mean that it is normalized
with. A group that raises the peak is dissolved."""

READS_ONCE = ("reduce_", "arg_", "max_pool", "avg_pool", "lp_pool")
"""Reductions, by start of name, that read each element of operand 0 about once, so that it may be computed there."""


def expansion(ops: Iterable[Op]) -> int:
    """Reads of operands in a kernel of `ops` (in execution order) that recomputes each value for each use."""
    reads: dict[Value, int] = {}
    most = 0
    for op in ops:
        for result in op.results:
            integer_power = op.name == "pow" and not result.type.dtype.is_float
            names = INTEGER_POWER if integer_power else NAMES.get(op.name, 1)
            # bf16 is rounded by its bits, which are named four times.
            rounding = 4 if result.type.dtype is DType.BF16 else 1
            reads[result] = sum(reads.get(v, 1) for v in op.operands) * names * rounding
            most = max(most, reads[result])
    return most


class _Fuser:
    """One attempt at forming the groups of a function."""

    def __init__(
        self, function: Function, target: str, max_ops: int, max_operands: int, refused: Collection[Op]
    ) -> None:
        self.function = function
        self.target = target
        self.max_ops = max_ops
        self.max_operands = max_operands
        self.refused = refused
        self.index = {op: index for index, op in enumerate(function.ops)}
        self.uses = function.uses()
        self.returned = set(function.returns)
        self.group: dict[Op, Group] = {}
        self.root: dict[Value, Value] = {}
        """What a value is a view of; itself if of nothing."""
        self.last: dict[Value, int] = {}
        """The last op that reads a value or a view of it."""
        for param in function.params:
            self.root[param] = param
        for index, op in enumerate(function.ops):
            for value in op.operands:
                self.last[self.root[value]] = index
            for value in op.results:
                self.root[value] = value if view_offset(op) is None else self.root[op.operands[0]]

    def run(self) -> list[Group]:
        """The groups of more than one op, by position."""
        for op in self.function.ops:
            if self._fusable(op):
                group = Group([op], {op}, op if has(op, Trait.REDUCTION) else None)
                self.group[op] = group
                if not self._waits(op):
                    self._absorb(group)
        groups = {id(g): g for g in self.group.values()}
        return sorted((g for g in groups.values() if len(g.ops) > 1), key=lambda g: self.index[g.sink])

    def _fusable(self, op: Op) -> bool:
        definition = lookup(op.name)
        if definition is None or op.region is not None or op in self.refused or len(op.results) != 1:
            return False
        if not isinstance(definition.lower, Compute) or not op.operands or op.result.type.elements == 0:
            return False
        if library_kernel(op, self.target) is not None:
            return False
        if has(op, Trait.ELEMENTWISE) or has(op, Trait.REDUCTION):
            return True
        # Views and concats are free if left alone.
        return has(op, Trait.INJECTIVE) and view_offset(op) is None and all(s is None for s in slice_offsets(op))

    def _waits(self, op: Op) -> bool:
        """Whether an op is to be taken in by its reader before it takes in others: a cast of halves to f32 would have more
        bytes written. Where the reader may, it then takes in the others as well."""
        if op.name != "cast" or op.operands[0].type.dtype not in HALF or op.result in self.returned:
            return False
        readers = self.uses.get(op.result, ())
        return len(readers) == 1 and op.result.type.dtype.itemsize > 2 and self._fusable(readers[0])

    def _absorb(self, group: Group) -> None:
        """Take in the groups that make operands of `group`, as long as that is allowed."""
        pending = list(reversed(group.operands()))
        while pending:
            value = pending.pop()
            producer = value.op
            if producer is None or producer in group.inside or producer not in self.group:
                continue
            other = self.group[producer]
            if other is group or other.sink is not producer or not self._may_join(group, other, value):
                continue
            merged = Group(
                sorted([*group.ops, *other.ops], key=self.index.__getitem__),
                group.inside | other.inside,
                group.reduction or other.reduction,
            )
            group.ops, group.inside, group.reduction = merged.ops, merged.inside, merged.reduction
            for op in other.ops:
                self.group[op] = group
            pending.extend(reversed([v for op in other.ops for v in op.operands]))

    def _may_join(self, group: Group, other: Group, value: Value) -> bool:
        if value in self.returned or any(user not in group.inside for user in self.uses[value]):
            return False
        if group.reduction is not None and other.reduction is not None:
            return False
        if len(group.ops) + len(other.ops) > self.max_ops:
            return False
        if len({*group.operands(), *other.operands()} - {value}) > self.max_operands:
            return False
        if expansion(sorted([*group.ops, *other.ops], key=self.index.__getitem__)) > MAX_EXPANSION:
            return False
        readers = [(op, v) for v, ops in self._between(group, value).items() for op in ops]
        return all(self._may_read(reader, v, other) for reader, v in readers) and self._late_enough(group, other, value)

    def _between(self, group: Group, value: Value) -> dict[Value, list[Op]]:
        """The values on the way from `value` to the result of `group`, each with its readers: how an op reads its operand is
        how it reads all that the operand is computed from."""
        found: dict[Value, list[Op]] = {value: []}
        for op in group.ops:
            read = [v for v in dict.fromkeys(op.operands) if v in found]
            for operand in read:
                found[operand].append(op)
            if read:
                found[op.result] = []
        return found

    def _may_read(self, reader: Op, value: Value, other: Group) -> bool:
        """Whether `reader` may compute the elements of `value`, which is computed from the result of `other`, itself as it
        reads them."""
        if other.reduction is not None:
            return has(reader, Trait.ELEMENTWISE) and value.type.shape == reader.result.type.shape
        if has(reader, Trait.REDUCTION):
            once = reader.name.startswith(READS_ONCE) and flops(reader) <= 3 * value.type.elements
            return once and all(v is not value for v in reader.operands[1:])
        if reader.result.type.elements > value.type.elements:
            return not any(op.name in EXPENSIVE for op in other.ops)
        return True

    def _late_enough(self, group: Group, other: Group, value: Value) -> bool:
        """Whether moving `other` down to the group's place keeps no more bytes alive than it saves."""
        place = self.index[group.sink]
        if place == self.index[other.sink] + 1:
            return True
        held = 0
        for operand in other.operands():
            root = self.root[operand]
            if root.op is None or root.op.name == "constant" or root in self.returned:
                continue
            if self.last[root] < place:
                held += operand.type.nbytes
        return held <= value.type.nbytes * (1 + SMALL)


def fuse(
    module: Module,
    function: Function,
    target: str,
    max_ops: int = 16,
    max_operands: int = 12,
    alignment: int = ALIGNMENT,
    apart: Collection[str] = (),
) -> None:
    """Form groups, and dissolve those that would raise the peak or whose result `apart` names."""
    peak = planned_peak(function, alignment)
    before = Snapshot.of(module, function)
    refused: set[Op] = set()
    for _ in range(MAX_ROUNDS):
        groups = _Fuser(function, target, max_ops, max_operands, refused).run()
        while unwanted := [op for group in groups if group.sink.result.name in apart for op in group.ops]:
            refused.update(unwanted)
            groups = _Fuser(function, target, max_ops, max_operands, refused).run()
        rewrite(function, groups)
        plan = plan_aliases(function, alignment, refine=False)
        if plan.peak <= peak:
            return
        top = int(plan.live.argmax())
        before.restore()
        refused |= set(_blamed(function, groups, _old_index(function, groups, top)))
    before.restore()


def fuse_all(function: Function, target: str) -> None:
    """Form all groups, whatever becomes of the peak: for a quick look at what a function will be."""
    defaults = Fuse()
    rewrite(function, _Fuser(function, target, defaults.max_ops, defaults.max_operands, set()).run())


def _old_index(function: Function, groups: Iterable[Group], top: int) -> int:
    """The position before fusion of op number `top` after it."""
    absorbed = {op for group in groups for op in group.ops[:-1]}
    kept = [index for index, op in enumerate(function.ops) if op not in absorbed]
    return kept[top]


def _blamed(function: Function, groups: Iterable[Group], top: int) -> list[Op]:
    """All but the last op of the groups that span position `top`: fused into nothing, they keep their places."""
    index = {op: number for number, op in enumerate(function.ops)}
    return [op for group in groups if index[group.ops[0]] <= top <= index[group.sink] for op in group.ops[:-1]]


@dataclass(frozen=True)
class Fuse(Pass):
    """Elementwise chains, prologues and epilogues in one kernel. Never raises the peak."""

    name: ClassVar[str] = "fuse"
    target: Optional[LibraryTarget] = None
    """The target whose library kernels keep their ops to themselves."""
    max_ops: Count = 16
    max_operands: Count = 12
    """Limits that keep a kernel's code and argument list sane."""
    alignment: Optional[Alignment] = None
    apart: tuple[str, ...] = ()
    """Results, by name, of groups whose ops are to stay as they are, since no kernel of them compiles."""

    def apply(self, module: Module) -> None:
        target, alignment = library_target(self.target, module), alignment_of(self.alignment, module)
        for function in module.functions:
            if is_raw(function):
                fuse(module, function, target, self.max_ops, self.max_operands, alignment, self.apart)

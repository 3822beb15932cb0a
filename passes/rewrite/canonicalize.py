# SPDX-License-Identifier: Apache-2.0
"""canonicalize: identities, constant folding, common subexpressions and dead code.

One sweep in execution order rewrites each op (rules in `identities.py` and `fold_conv.py`), until nothing changes;
then dead ops and unused weights go. Foreign ops are never removed or merged, as nobody knows what they do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.checked_options import ByteCount
from memc.ir.core import Array, Attr, Function, Op, Role, Value, fresh_names
from memc.ir.module import Module
from memc.ir.op_queries import has
from memc.ir.ops.shared.op_def import Trait, lookup
from memc.ir.snapshot import Snapshot, is_raw
from memc.passes.base import Pass
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.fold_conv import fold_into_conv
from memc.passes.rewrite.identities import simplify
from memc.passes.rewrite.materialize_returns import materialize_returns

MAX_SWEEPS = 8


@dataclass
class Context:
    """What a rewrite rule may use."""

    module: Module
    builder: IRBuilder
    """Appends before the op at hand."""
    use_counts: dict[Value, int]
    """Reads, plus one for each return. Values made during the sweep are not in it."""
    constants: dict[Value, Array] = field(default_factory=dict)

    def constant_of(self, value: Value) -> Array | None:
        """The data of a constant or weight; None for other values, and for weights without data."""
        if value.op is None:
            return self.module.weights.get(value.name) if value.role is Role.WEIGHT else None
        if value.op.name != "constant":
            return None
        data = value.op.attrs["value"]
        assert isinstance(data, np.ndarray)
        return data

    def used_once(self, value: Value) -> bool:
        return self.use_counts.get(value, 0) == 1


def canonicalize(module: Module, function: Function, fold_limit: int, cse: bool) -> bool:
    """Rewrite until stable, and say whether anything but dead code changed.

    `fold_limit`: folded results up to this many bytes may be larger than their operands.
    """
    names = fresh_names([*(v.name for v in function.values()), *module.weights])
    sweeps = 0
    changed = True
    while changed and sweeps < MAX_SWEEPS:
        changed = _sweep(module, function, IRBuilder(module, function, [], names), fold_limit, cse)
        remove_dead(module, function)
        sweeps += 1
    materialize_returns(module, function)
    return sweeps > 1


def _sweep(module: Module, function: Function, builder: IRBuilder, fold_limit: int, cse: bool) -> bool:
    context = Context(module, builder, _use_counts(function))
    replaced: dict[Value, Value] = {}
    seen: dict[Hashable, Op] = {}
    changed = False
    for op in function.ops:
        op.operands = [replaced.get(v, v) for v in op.operands]
        builder.location = op.location
        mark = len(builder.ops)
        found = _rewrite(context, op, fold_limit)
        if found is None and cse:
            found = _merge(op, seen)
        if found is None:
            builder.ops.append(op)
            continue
        changed = True
        made = {value for inner in builder.ops[mark:] for value in inner.results}
        for old, new in zip(op.results, found):
            replaced[old] = new
            context.use_counts[new] = context.use_counts.get(new, 0) + context.use_counts.get(old, 0)
            if new in made:
                new.name = old.name
    function.ops = builder.ops
    function.returns = [replaced.get(v, v) for v in function.returns]
    return changed


def _rewrite(context: Context, op: Op, fold_limit: int) -> Sequence[Value] | None:
    if lookup(op.name) is None or op.name == "constant" or op.region is not None or has(op, Trait.COPY):
        return None
    return _fold(context, op, fold_limit) or simplify(context, op) or fold_into_conv(context, op)


def _fold(context: Context, op: Op, fold_limit: int) -> Sequence[Value] | None:
    """Evaluate an op whose operands are all constant, unless that would blow up the weights."""
    definition = lookup(op.name)
    assert definition is not None
    if has(op, Trait.RANDOM):
        return None
    limit = max(fold_limit, sum(v.type.nbytes for v in op.operands))
    if sum(v.type.nbytes for v in op.results) > limit:
        return None
    inputs = [context.constant_of(v) for v in op.operands]
    known = [data for data in inputs if data is not None]
    if len(known) != len(inputs):
        return None
    with np.errstate(all="ignore"):
        found = definition.evaluate(known, op.attrs, [v.type for v in op.results])
    arrays = [
        np.asarray(data, dtype=value.type.dtype.numpy, order="C").reshape(value.type.shape)
        for data, value in zip(found, op.results)
    ]
    return [context.builder.constant(data, value.name) for data, value in zip(arrays, op.results)]


def _merge(op: Op, seen: dict[Hashable, Op]) -> Sequence[Value] | None:
    """The results of an equal op met before: of one that means the same, rounds alike, and is the same recomputation."""
    if lookup(op.name) is None or op.region is not None or has(op, Trait.RANDOM) or has(op, Trait.COPY):
        return None
    operands = [id(v) for v in op.operands]
    if has(op, Trait.COMMUTATIVE):
        operands.sort()
    attrs = tuple((k, attribute_key(v)) for k, v in sorted(op.attrs.items()))
    key = (op.name, tuple(operands), attrs, op.plan.precision, op.plan.recompute)
    earlier = seen.setdefault(key, op)
    return None if earlier is op else earlier.results


def attribute_key(value: Attr) -> Hashable:
    """Equal exactly if two attributes are: type and bits count, so 1, 1.0 and True differ, as do 0.0 and -0.0."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, tuple):
        if all(type(item) is int for item in value):
            return (tuple, value)
        return tuple(attribute_key(item) for item in value)
    if isinstance(value, float):
        return (float, value.hex())
    return (type(value), value)


def _use_counts(function: Function) -> dict[Value, int]:
    counts: dict[Value, int] = {}
    for op in function.ops:
        for value in op.operands:
            counts[value] = counts.get(value, 0) + 1
    for value in function.returns:
        counts[value] = counts.get(value, 0) + 1
    return counts


def remove_dead(module: Module, function: Function) -> None:
    """Drop registered ops of which no result is used, and weights that nobody reads."""
    used = set(function.returns)
    kept: list[Op] = []
    for op in reversed(function.ops):
        if lookup(op.name) is None and op.region is None or any(v in used for v in op.results):
            kept.append(op)
            used.update(op.operands)
    function.ops = kept[::-1]
    dropped = [p for p in function.params if p.role is Role.WEIGHT and p not in used]
    function.params = [p for p in function.params if p.role is not Role.WEIGHT or p in used]
    others = {p.name for f in module.functions if f is not function for p in f.params}
    for param in dropped:
        if param.name not in others:
            module.weights.pop(param.name, None)


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Identities, constant folding, common subexpressions, dead code.

    Merging equal ops can lengthen lifetimes. Where that raises the peak it is left out.
    """

    name: ClassVar[str] = "canonicalize"
    fold_limit: ByteCount = 65536
    """Bytes up to which a folded constant may be larger than what it was computed from."""

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if not is_raw(function):
                continue
            before = Snapshot.of(module, function)
            for cse in (True, False):
                if not canonicalize(module, function, self.fold_limit, cse) or _no_higher(module, function, before):
                    break
                before.restore()


def _no_higher(module: Module, function: Function, before: Snapshot) -> bool:
    """Whether the peak is at most what it was at the snapshot."""
    alignment = module.target.alignment
    after, reached = Snapshot.of(module, function), planned_peak(function, alignment)
    before.restore()
    allowed = planned_peak(function, alignment)
    after.restore()
    return reached <= allowed

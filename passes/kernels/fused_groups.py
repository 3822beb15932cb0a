# SPDX-License-Identifier: Apache-2.0
"""Groups of ops as `fused` ops: put in their place, and split again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from memc.ir.core import FUSED, Block, Function, Op, Value, fresh_names, replace_all_uses


@dataclass(eq=False)
class Group:
    """Ops in execution order; the last one's result is the group's."""

    ops: list[Op]
    inside: set[Op] = field(default_factory=set)
    reduction: Op | None = None

    @property
    def sink(self) -> Op:
        return self.ops[-1]

    def operands(self) -> list[Value]:
        """Values read from outside, in order of first use."""
        return list(dict.fromkeys(v for op in self.ops for v in op.operands if v.op not in self.inside))


def rewrite(function: Function, groups: Iterable[Group]) -> None:
    """Replace each group with one `fused` op that yields the last op's result."""
    fused: dict[Op, Op] = {group.sink: fused_op(group) for group in groups}
    absorbed = {op for group in groups for op in group.ops[:-1]}
    replaced = {group.sink.result: fused[group.sink].result for group in groups}
    function.ops = [fused.get(op, op) for op in function.ops if op not in absorbed]
    for op in function.ops:
        if any(v in replaced for v in op.operands):
            op.operands = [replaced.get(v, v) for v in op.operands]
    function.returns = [replaced.get(v, v) for v in function.returns]


def split_groups(function: Function, names: Collection[str]) -> None:
    """Put the ops of the fused ops with a result of these names in their place."""
    fresh = fresh_names([v.name for v in function.values()])
    ops: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in function.ops:
        if op.name != FUSED or op.region is None or op.results[0].name not in names:
            ops.append(op)
            continue
        known = dict(zip(op.region.params, op.operands))
        for inner in op.region.ops:
            results = [Value(next(fresh), r.type) for r in inner.results]
            ops.append(
                Op(
                    inner.name,
                    [known[v] for v in inner.operands],
                    results,
                    dict(inner.attrs),
                    inner.plan,
                    location=op.location,
                )
            )
            known.update(zip(inner.results, results))
        for result, returned in zip(op.results, op.region.returns):
            replaced[result] = known[returned]
            if returned not in op.region.params:
                known[returned].name = result.name
    function.ops = ops
    replace_all_uses(function, replaced)


def fused_op(group: Group) -> Op:
    """A group as one op. Its ops stay as they are."""
    operands = group.operands()
    inner: dict[Value, Value] = {v: Value(f"a{i}", v.type) for i, v in enumerate(operands)}
    params = list(inner.values())
    ops: list[Op] = []
    for op in group.ops:
        results = [Value(str(len(ops)), r.type) for r in op.results]
        ops.append(
            Op(
                op.name,
                [inner[v] for v in op.operands],
                results,
                dict(op.attrs),
                op.plan.inside(),
                location=op.location,
            )
        )
        inner.update(zip(op.results, results))
    region = Block(params, ops, [inner[group.sink.result]])
    result = Value(group.sink.result.name, group.sink.result.type)
    return Op(FUSED, operands, [result], {}, region=region, location=group.sink.location)

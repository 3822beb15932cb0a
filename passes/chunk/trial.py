# SPDX-License-Identifier: Apache-2.0
"""Plans of functions and stretches as they will be once they are fused, before they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memc.ir.core import Function, Op, Role, Value
from memc.ir.module import Module
from memc.ir.snapshot import Snapshot
from memc.passes.chunk.classes import Head, head_of, run_in_classes
from memc.passes.chunk.slices import Bounds, run_in_slices
from memc.passes.chunk.stretch import Graph, Stretch
from memc.passes.kernels.early_updates import move_updates
from memc.passes.kernels.fuse import fuse_all
from memc.passes.kernels.fuse_library import form_groups
from memc.passes.placement.alias_plan import AliasPlan, plan_aliases

By = Literal["auto", "rows", "classes"]
"""What stretches are sliced along: rows, a head's classes, or what lowers the peak more within the time."""


@dataclass(frozen=True)
class Limits:
    """What slices may cost, and how a function is fused after them."""

    slices: int | None
    """None: as many as the planner finds."""
    slowdown: float
    by: By
    heads: bool
    """Whether heads of classifiers alone are looked at."""
    target: str
    alignment: int


@dataclass(frozen=True)
class Trial:
    """A function's plan, fused as it will be. The function itself stays as it is."""

    plan: AliasPlan
    ops: Sequence[Op]

    @staticmethod
    def of(module: Module, function: Function, limits: Limits) -> Trial:
        before = Snapshot.of(module, function)
        if limits.target != "none":
            move_updates(module, function, limits.target)
            form_groups(module, function, limits.target)
        fuse_all(function, limits.target)
        plan = plan_aliases(function, limits.alignment, refine=False)
        ops = list(function.ops)
        before.restore()
        return Trial(plan, ops)

    @property
    def peak(self) -> int:
        return self.plan.peak

    def live_names(self) -> set[str]:
        """Names of what is live at the peak, of what only a fused group computes too."""
        if self.plan.peak == 0:
            return set()
        top = int(self.plan.live.argmax())
        kept = {storage for storage in self.plan.storage.values() if storage.lower <= top < storage.upper}
        return {v.name for v, s in self.plan.storage.items() if s in kept and not s.fixed}

    def around(self, stretch: Stretch) -> tuple[int, int]:
        """The largest live sets while ops of the stretch run, and while others do."""
        made, inside = {op.result.name for op in stretch.forms}, {v.name for v in stretch.inside}

        def belongs(op: Op) -> bool:
            """A group may end in an op behind the stretch, but it reads something that is inside."""
            return any(v.name in made for v in op.results) or any(v.name in inside for v in op.operands)

        at = [n for n, op in enumerate(self.ops) if belongs(op)]
        if not at:
            return 0, self.peak
        low, high = min(at), max(at) + 1
        live = self.plan.live
        elsewhere = max(int(live[:low].max(initial=0)), int(live[high:].max(initial=0)))
        return int(live[low:high].max(initial=0)), elsewhere


def alone(module: Module, stretch: Stretch, limits: Limits, bounds: Sequence[Bounds]) -> Trial:
    """The plan of a stretch in slices as a function of its own, without the bytes of operands and results; bounds of as many rows as
    it has are of rows, others of classes."""
    copies = {v: Value(v.name, v.type, role=Role.INPUT) for v in stretch.operands}
    params, forms = list(copies.values()), {}
    for op, form in stretch.forms.items():
        results = [Value(v.name, v.type) for v in op.results]
        made = Op(op.name, [copies[v] for v in op.operands], results, dict(op.attrs), op.plan)
        copies.update(zip(op.results, results))
        forms[made] = form
    function = Function(params, list(forms), [copies[v] for v in stretch.results], "stretch")
    own = Module([function], {}, set(), {}, module.target)
    copy = Stretch(stretch.rows, forms, Graph.of(function))
    if len(bounds) > 1 and bounds[-1][1] == stretch.rows:
        run_in_slices(own, function, copy, bounds)
    elif len(bounds) > 1 and isinstance(head := head_of(copy), Head):
        run_in_classes(own, function, head, bounds)
    return Trial.of(own, function, limits)

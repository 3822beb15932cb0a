# SPDX-License-Identifier: Apache-2.0
"""The picture of a plan of `memc.plan`: of a CSV problem, a dataflow graph, or tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memc.frontend.graph import Graph
from memc.ir.sizes import format_size
from memc.planning import Plan
from memc.planning.tensors import TensorColumns

from .picture import Interval, PictureSpace, PictureStep, PlacedTensor, PlanPicture

TENSORS, OUTPUTS = "tensors", "outputs"
"""Roles."""

SPARSE = 4
"""From how many steps for each at which something begins or ends the others are left out."""


def picture_of_plan(plan: Plan, title: str, graph: Graph | None = None) -> PlanPicture:
    """The picture of a plan. `graph`: what it is a plan of, if it is one of a dataflow graph."""
    columns = TensorColumns.of(plan.tensors)
    number = {space.name: index for index, space in enumerate(plan.spaces)}
    of_space = [0] * len(columns) if columns.spaces is None else [number[space] for space in columns.spaces]
    known = _Graph(plan, graph) if graph is not None else None
    tensors = [
        PlacedTensor(
            name,
            tuple(lives) if lives else ((lower, upper),),
            offset,
            size,
            space,
            TENSORS if known is None else known.role(name),
            decision="alias" if alias else "",
            reason=f"lies in the bytes of {alias}" if alias else "",
            uses=() if known is None else known.uses(name),
        )
        for name, lower, upper, size, offset, space, lives, alias in zip(
            columns.ids,
            columns.lowers.tolist(),
            columns.uppers.tolist(),
            columns.sizes.tolist(),
            plan.offsets,
            of_space,
            columns.lives or [()] * len(columns),
            columns.aliases or [""] * len(columns),
        )
    ]
    ops = () if known is None else known.steps()
    steps = max(max((tensor.upper for tensor in tensors), default=0), len(ops))
    moments: list[int] = []
    times = sorted({time for tensor in tensors for life in tensor.lives for time in life}) if known is None else []
    if times and (times[0] < 0 or steps > SPARSE * len(times)):
        step_of = {time: step for step, time in enumerate(times)}
        tensors = [_renumbered(tensor, step_of) for tensor in tensors]
        moments, steps = times, len(times) - 1
    spaces = tuple(PictureSpace(s.name, s.peak, s.lower_bound, s.capacity) for s in plan.spaces)
    return PlanPicture(
        title, "step" if known is None else "op", steps, spaces, tensors, ops, facts=_facts(plan), moments=moments
    )


def _renumbered(tensor: PlacedTensor, step_of: Mapping[int, int]) -> PlacedTensor:
    lives: tuple[Interval, ...] = tuple((step_of[lower], step_of[upper]) for lower, upper in tensor.lives)
    return replace(tensor, lives=lives)


def _facts(plan: Plan) -> tuple[tuple[str, str], ...]:
    return (
        ("peak", format_size(plan.peak)),
        ("lower bound", format_size(plan.lower_bound)),
        ("gap", f"{plan.gap_percent:.2f} %"),
        ("tensors", f"{len(plan.tensors):,}"),
        ("solver", plan.solver),
    )


class _Graph:
    """The ops of a graph in the order of a plan, and which of them touch each storage."""

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self.graph = graph
        self.order: Sequence[int] = plan.order if plan.order is not None else range(len(graph.ops))
        touched: dict[str, list[int]] = {}
        for step, index in enumerate(self.order):
            for storage in graph.touched(graph.ops[index]):
                touched.setdefault(graph.storage_names[storage], []).append(step)
        self._touched = touched
        self._outputs = {graph.storage_names[graph.tensors[tensor].storage] for tensor in graph.outputs}

    def role(self, storage: str) -> str:
        return OUTPUTS if storage in self._outputs else TENSORS

    def uses(self, storage: str) -> tuple[int, ...]:
        return tuple(self._touched.get(storage, ()))

    def steps(self) -> tuple[PictureStep, ...]:
        ops = (self.graph.ops[index] for index in self.order)
        return tuple(PictureStep(op.target, place=op.name) for op in ops)

# SPDX-License-Identifier: Apache-2.0
"""Addresses, and for graphs an order of the ops, for tensors that no model of memc's stands behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Optional, Union

import numpy as np

from memc import driver
from memc.frontend.graph import Graph, read_graph
from memc.frontend.sources import GRAPH, format_of
from memc.ir.checked import Range, require, require_one_of
from memc.ir.durations import Seconds
from memc.ir.errors import InvalidError, UsageError
from memc.ir.liveness import lifetimes
from memc.ir.messages import shown as shown_value
from memc.ir.module import Module
from memc.ir.sizes import format_size
from memc.options import Options
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.solvers.order import order_lower_bound, order_peak, order_solver_names, solve_order
from memc.solvers.placement import MAX_BYTES, BufferColumns, Problem, Solution, Violation, check, solve, solver_names

from .csv_file import read_csv
from .graph_problems import order_problem, placement_problem
from .tensors import ARENA, Int64s, Tensor, TensorColumns, blocks_of, shown
from .unfit import CapacityError, find_unfit

PlanSource = Union[str, Path, Graph, Module, Sequence[Tensor]]
"""A path to .csv, .json, .json.gz, .memir or .onnx; a graph; a module; or tensors."""

ALIGNMENTS = Range(least=1, most=2**40, what="bytes")

BOUND_WORK = 2 * 10**8
"""Steps spent on the bound on all orders, without a time limit."""


MAX_THREADS = 1024


@dataclass(frozen=True)
class SpacePlan:
    """One memory space. All figures are in bytes."""

    name: str
    peak: int
    lower_bound: int
    capacity: int | None = None


@dataclass(frozen=True)
class Plan:
    """Where every tensor lies, and how good that is."""

    peak: int
    """Bytes, over all spaces."""
    lower_bound: int
    """Bytes: no plan has a lower peak; with `reorder`, no order either."""
    seconds: float
    solver: str
    tensors: Sequence[Tensor]
    """For a graph or module: its storages, by name."""
    offsets: Sequence[int]
    """Of each tensor, bytes from the start of its space."""
    spaces: Sequence[SpacePlan]
    order: Sequence[int] | None = None
    """Of a graph: its ops by index, in execution order."""

    @property
    def proven_optimal(self) -> bool:
        return self.peak == self.lower_bound

    @property
    def gap_percent(self) -> float:
        """How far the peak is above the lower bound."""
        if self.peak == self.lower_bound:
            return 0.0
        return 100 * (self.peak - self.lower_bound) / self.lower_bound if self.lower_bound else float("inf")

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """For JSON. `full` adds `order` (of a graph) and `offsets` (by tensor)."""
        data: dict[str, Any] = {
            "peak": self.peak,
            "lower_bound": self.lower_bound,
            "gap_percent": round(self.gap_percent, 4) if self.lower_bound or not self.peak else None,
            "proven_optimal": self.proven_optimal,
            "seconds": round(self.seconds, 4),
            "solver": self.solver,
        }
        if len(self.spaces) > 1:
            data["spaces"] = [
                {"name": s.name, "peak": s.peak, "lower_bound": s.lower_bound, "capacity": s.capacity}
                for s in self.spaces
            ]
        if full:
            if self.order is not None:
                data["order"] = list(self.order)
            data["offsets"] = {t.id: offset for t, offset in zip(self.tensors, self.offsets)}
        return data


def plan(
    source: PlanSource,
    *,
    capacity: int | Mapping[str, int] | None = None,
    alignment: int | None = None,
    reorder: bool = False,
    solver: str = "auto",
    order_solver: str = "auto",
    time_limit: float | None = None,
    threads: int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, Any] | None = None,
) -> Plan:
    """Give every tensor an address, and with `reorder` the ops of a graph an order, so that the peak is low.

    Args:
        source: what to plan. A module is planned as it is; an ONNX model as -O2 leaves it.
        capacity: bytes, of the only space or by the name of each.
        alignment: bytes; by default what a CSV file says, a module's target's (64 for ONNX), otherwise 1. Sizes are rounded up to it. It
            replaces a CSV file's alignments; a `Tensor` with an alignment keeps its own, and sizes are then rounded up to the
            greatest common divisor of all.
        solver, order_solver: by name; see `solver_names` and `order_solver_names`.
        time_limit: seconds for the search, half of them at most for the order; without it, work is bounded by count.
        threads: for the search, by default one for each core.
        dims, input_shapes, bind: of an ONNX model's inputs, as for `memc.compile`.

    Raises:
        BudgetError: nothing found that keeps the capacity; the message states the least peak found. It is a
            `CapacityError`, whose `unfit` names tensors that do not fit.
        MemcError: for anything wrong with the source or the options.
    """
    require_one_of(solver, solver_names(), f"solver `{solver}`")
    require_one_of(order_solver, order_solver_names(), f"order solver `{order_solver}`")
    alignment = require(alignment, Optional[Annotated[int, ALIGNMENTS]], "alignment")
    time_limit = require(time_limit, Optional[Seconds], "time_limit")
    threads = require(threads, Optional[Annotated[int, Range(least=1, most=MAX_THREADS)]], "threads")
    require(reorder, bool, "reorder")
    kind: Any = Mapping[str, int] if isinstance(capacity, Mapping) else Optional[int]
    capacity = require(capacity, kind, "capacity")
    if isinstance(source, bytes) or not isinstance(source, (str, Path, Graph, Module, Sequence)):
        raise UsageError(f"source: expected a path, a graph, a module or a list of tensors, got {shown_value(source)}")
    loaded: Graph | Module | Sequence[Tensor]
    if isinstance(source, (str, Path)):
        name = str(source)
        said: dict[str, Any] = {"dims": dims, "input_shapes": input_shapes, "bind": bind}
        options = Options(**{option: value for option, value in said.items() if value is not None})
        loaded, given_alignment, first_line = _load(source, options)
    else:
        name, first_line, loaded = "tensors", None, source
        if isinstance(source, Module):
            loaded = driver.load_module(source, Options())
        given_alignment = source.target.alignment if isinstance(source, Module) else 1
    if alignment is None:
        alignment = given_alignment
    elif isinstance(source, (str, Path)) and isinstance(loaded, TensorColumns):
        loaded = replace(loaded, alignments=None)
    if reorder and not isinstance(loaded, Graph):
        raise UsageError(f"{name}: only a dataflow graph can be reordered here; for a model run the passes of memc opt")
    begin = time.perf_counter()
    order: Sequence[int] | None = None
    bound = 0
    try:
        if isinstance(loaded, Graph):
            problem = order_problem(loaded, alignment)
            order = range(len(loaded.ops))
            if reorder:
                found = solve_order(problem, order_solver, time_limit=_part(time_limit, 1 / 2))
                order, bound = found.order, found.lower_bound
                if found.peak > bound:
                    known = order_lower_bound(problem, order, work=BOUND_WORK, time_limit=_part(time_limit, 1 / 8))
                    bound = max(bound, known)
                if order_peak(problem, order) != found.peak:
                    raise RuntimeError(f"order solver {order_solver} states a wrong peak")
            tensors: Sequence[Tensor] = _storages(loaded, order)
        elif isinstance(loaded, Module):
            tensors = [Tensor(life.root.name, life.lower, life.upper, life.nbytes) for life in lifetimes(loaded.main)]
        else:
            tensors = loaded
        left = None if time_limit is None else max(0.0, time_limit - (time.perf_counter() - begin))
        placing = _Placing(name, alignment, solver, left, threads)
        result = placing.place(tensors, first_line, capacity)
    except OverflowError:
        raise InvalidError(f"{name}: the sizes together exceed 2**63 - 1 bytes") from None
    if isinstance(loaded, Graph):
        result = replace(result, order=tuple(order or ()))
        if reorder:
            spaces = [replace(space, lower_bound=bound) for space in result.spaces]
            result = replace(result, lower_bound=bound, spaces=spaces)
    result = replace(result, seconds=time.perf_counter() - begin)
    placing.keep_capacity(result, reorder)
    return result


def _part(time_limit: float | None, share: float) -> float | None:
    return None if time_limit is None else share * time_limit


def _load(path: str | Path, options: Options) -> tuple[Graph | Module | TensorColumns, int, int | None]:
    """What a file holds, its alignment, and the line of its first tensor if tensors are lines."""
    found = format_of(path)
    if found is GRAPH:
        return read_graph(path), 1, None
    if found is not None:
        module = driver.load_module(path, options)
        if found.holds == "model":
            manager = PassManager.parse(pipeline(2))
            manager.passes = [item for item in manager.passes if item.name != "assign-addresses"]
            manager.run(module)
        return module, module.target.alignment, None
    tensors, alignment = read_csv(path)
    return tensors, alignment, 2


def _storages(graph: Graph, order: Sequence[int]) -> TensorColumns:
    problem, storages = placement_problem(graph, order)
    buffers = BufferColumns.of(problem.buffers)
    names = [graph.storage_names[storage] for storage in storages]
    return TensorColumns(names, buffers.lowers, buffers.uppers, buffers.sizes, buffers.offsets)


@dataclass
class _Placing:
    """How the spaces are placed, and what was placed there."""

    name: str
    """Of the source, in errors."""
    alignment: int
    solver: str
    time_limit: float | None
    """Seconds that are left."""
    threads: int | None
    problems: list[tuple[Problem, list[str]]] = field(default_factory=list)
    """Of each space, with the names of its buffers."""

    def place(
        self, tensors: Sequence[Tensor], first_line: int | None, capacity: int | Mapping[str, int] | None
    ) -> Plan:
        """Place each space on its own. A space that is over its capacity stays so; the caller sees to it."""
        columns = TensorColumns.of(tensors, self.name)
        blocks = blocks_of(columns, self.name, first_line)
        buffers = blocks.buffers
        at = np.full(len(buffers), -1, np.int64)
        names, number = _numbered(blocks.spaces)
        limits = _capacities(capacity, names)
        firsts = np.arange(len(columns)) if columns.aliases is None else _roots(columns)
        spaces: list[SpacePlan] = []
        for index, space in enumerate(names):
            members = np.flatnonzero(number == index) if len(names) > 1 else np.arange(len(buffers))
            problem = _problem(buffers.take(members), self.alignment, limits.get(space, MAX_BYTES), self.name)
            ids = [columns.ids[first] for first in firsts[members].tolist()]
            self.problems.append((problem, ids))
            share = None if self.time_limit is None else self.time_limit / (len(names) - index)
            solution = self._solve(problem, ids, share)
            at[members] = solution.offset_array()
            spaces.append(SpacePlan(space, solution.peak, solution.lower_bound, limits.get(space)))
        offsets: list[int] = (at[blocks.block] + blocks.within).tolist()
        peak, bound = sum(space.peak for space in spaces), sum(space.lower_bound for space in spaces)
        return Plan(peak, bound, 0.0, self.solver, tensors, offsets, spaces)

    def _solve(self, problem: Problem, ids: Sequence[str], share: float | None) -> Solution:
        began = time.perf_counter()
        solution = solve(problem, self.solver, time_limit=share, threads=self.threads)
        if self.time_limit is not None:
            self.time_limit = max(0.0, self.time_limit - (time.perf_counter() - began))
        verdict = check(replace(problem, capacity=MAX_BYTES), solution)
        if not verdict.ok:
            pair = [i for i in (verdict.first, verdict.second) if i is not None]
            if verdict.violation is Violation.OVERLAP and all(problem.buffers[i].offset is not None for i in pair):
                both = " and ".join(shown(ids[i]) for i in pair)
                raise InvalidError(f"{self.name}: offset: tensors {both} overlap where they are pre-placed")
            raise RuntimeError(f"solver {self.solver} returned an invalid plan: {verdict}")
        return solution

    def keep_capacity(self, result: Plan, reordered: bool) -> None:
        """Raise CapacityError if a space is over its capacity. It names tensors that do not fit in the order found."""
        for space, (problem, ids) in zip(result.spaces, self.problems):
            if space.capacity is None or space.peak <= space.capacity:
                continue
            unfit = find_unfit(problem, ids, space.name, self.time_limit, self.threads)
            proven = space.lower_bound > space.capacity or (unfit is not None and unfit.proven and not reordered)
            verdict = "proven not to fit" if proven else "not proven impossible"
            raise CapacityError(
                f"{self.name}: capacity of {space.capacity} bytes ({format_size(space.capacity)}) of {space.name} is not "
                f"met: the least peak found is {space.peak} bytes, the lower bound {space.lower_bound}; {verdict}"
                + ("" if unfit is None else f"; {'in the order found, ' if reordered else ''}{unfit.text()}"),
                unfit,
            )


def _roots(columns: TensorColumns) -> Int64s:
    """Of each block, the tensor that is no alias."""
    return np.array([index for index, alias in enumerate(columns.aliases or ()) if not alias], np.int64)


def _problem(buffers: BufferColumns, alignment: int, capacity: int, name: str) -> Problem:
    """The buffers of a space, with the greatest alignment that all of theirs are multiples of."""
    own = buffers.alignments
    if own is not None:
        own = np.where(own == 0, alignment, own)
        buffers = BufferColumns(buffers.sizes, buffers.lowers, buffers.uppers, buffers.offsets, buffers.lives, own)
        alignment = int(np.gcd.reduce(own))
    _fixed_are_aligned(buffers, alignment, name)
    return Problem(buffers, alignment, capacity)


def _numbered(spaces: Sequence[str] | None) -> tuple[list[str], Int64s]:
    """The names of the spaces, and of each block the number of its space."""
    if not spaces:
        return [ARENA], np.zeros(0, np.int64)
    index = {name: number for number, name in enumerate(dict.fromkeys(spaces))}
    return list(index), np.array([index[space] for space in spaces], np.int64)


def _fixed_are_aligned(buffers: BufferColumns, alignment: int, name: str) -> None:
    steps = np.full(len(buffers), alignment, np.int64) if buffers.alignments is None else buffers.alignments
    for index in np.flatnonzero((buffers.offsets >= 0) & (buffers.offsets % steps != 0))[:1]:
        raise InvalidError(
            f"{name}: offset: expected multiples of the alignment {steps[index]}, got {buffers.offsets[index]}"
        )


def _capacities(capacity: int | Mapping[str, int] | None, names: Sequence[str]) -> dict[str, int]:
    if capacity is None:
        return {}
    if isinstance(capacity, int):
        if len(names) > 1:
            raise UsageError(f"capacity: expected one for each of the spaces {', '.join(names)}, got {capacity}")
        capacity = {names[0]: capacity}
    for name, size in capacity.items():
        if name not in names:
            raise UsageError(f"capacity: expected a space among {', '.join(names)}, got `{name}`")
        if type(size) is not int or not 0 <= size <= MAX_BYTES:
            raise UsageError(f"capacity: expected bytes from 0 to 2**63 - 1, got {size}")
    return dict(capacity)

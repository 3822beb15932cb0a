# SPDX-License-Identifier: Apache-2.0
"""Addresses, and for graphs an order of the ops, for tensors that no model of memc's stands behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Optional, Union

from memc import driver
from memc.compile_options import Options
from memc.frontend.graph import Graph, read_graph
from memc.frontend.sources import GRAPH, format_of
from memc.ir.checked_options import InBytes, Range, require, require_one_of
from memc.ir.durations import Seconds
from memc.ir.errors import InvalidError, UsageError
from memc.ir.liveness import lifetimes
from memc.ir.messages import shown as shown_value
from memc.ir.module import Module
from memc.passes.budget import AsBudget
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.solvers.order import OrderProblem, order_lower_bound, order_peak, order_solver_names, solve_order
from memc.solvers.placement import BufferColumns, solver_names

from .addresses import Limit, Placing
from .csv_file import read_csv
from .graph_problems import order_problem, placement_problem
from .plans import Plan
from .tensors import Tensor, TensorColumns

PlanSource = Union[str, Path, Graph, Module, Sequence[Tensor]]
"""A path to .csv, .json, .json.gz, .memir or .onnx; a graph; a module; or tensors."""

ALIGNMENTS = Annotated[int, Range(least=1, most=2**40, what="bytes"), InBytes()]

LIMIT = Union[int, AsBudget]

BOUND_WORK = 2 * 10**8
"""Steps spent on the bound on all orders, without a time limit."""

MAX_THREADS = 1024


def plan(
    source: PlanSource,
    *,
    capacity: int | str | Mapping[str, int | str] | None = None,
    alignment: int | str | None = None,
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

    With `reorder` the peak is never above that of the given order's plan, unless `time_limit` cuts the search short.

    Args:
        source: what to plan. A module is planned as it is; an ONNX model as -O2 leaves it.
        capacity: bytes, of the only space or by the name of each, also as text: `4GiB`, or `50%` of what all its tensors have together.
        alignment: bytes, also as text; by default what a CSV file says, a module's target's (64 for ONNX), otherwise 1. Sizes are rounded up to it. It
            replaces a CSV file's alignments; a `Tensor` with an alignment keeps its own, and sizes are then rounded up to the
            greatest common divisor of all.
        solver: of addresses, by name; see `solver_names`.
        order_solver: of the order, by name; see `order_solver_names`.
        time_limit: seconds for the search, half of them at most for the order; without it, work is bounded by count.
        threads: for the search, by default one for each core.
        dims: of an ONNX model's inputs, as for `memc.compile`.
        input_shapes: likewise.
        bind: likewise.

    Raises:
        BudgetError: nothing found that keeps the capacity; the message states the least peak found. It is a
            `CapacityError`, whose `unfit` names tensors that do not fit.
        MemcError: for anything wrong with the source or the options.
    """
    require_one_of(solver, solver_names(), f"solver `{solver}`")
    require_one_of(order_solver, order_solver_names(), f"order solver `{order_solver}`")
    step: int | None = require(alignment, Optional[ALIGNMENTS], "alignment")
    time_limit = require(time_limit, Optional[Seconds], "time_limit")
    threads = require(threads, Optional[Annotated[int, Range(least=1, most=MAX_THREADS)]], "threads")
    require(reorder, bool, "reorder")
    kind: Any = Mapping[str, LIMIT] if isinstance(capacity, Mapping) else Optional[LIMIT]
    limits: Limit | Mapping[str, Limit] | None = require(capacity, kind, "capacity")
    said: dict[str, Any] = {"dims": dims, "input_shapes": input_shapes, "bind": bind}
    options = Options(**{option: value for option, value in said.items() if value is not None})
    read = _read(source, step, options)
    if reorder and not isinstance(read.loaded, Graph):
        raise UsageError(
            f"{read.name}: only a dataflow graph can be reordered here; for a model run the passes of memc opt"
        )
    request = _Request(read, limits, solver, order_solver, time_limit, threads, time.perf_counter())
    try:
        placing, result = (
            request.plan_graph(read.loaded, reorder) if isinstance(read.loaded, Graph) else request.place()
        )
    except OverflowError:
        raise InvalidError(f"{read.name}: the sizes together exceed 2**63 - 1 bytes") from None
    result = replace(result, seconds=time.perf_counter() - request.begin)
    placing.keep_capacity(result, reorder)
    return result


@dataclass(frozen=True)
class _Source:
    """What is to be planned."""

    name: str
    """In errors."""
    loaded: Graph | Module | Sequence[Tensor]
    alignment: int
    """Bytes."""
    first_line: int | None = None
    """Of the first tensor, if tensors are lines of a file."""


def _read(source: PlanSource, alignment: int | None, options: Options) -> _Source:
    """The source with the alignment asked for, or its own."""
    if isinstance(source, bytes) or not isinstance(source, (str, Path, Graph, Module, Sequence)):
        raise UsageError(f"source: expected a path, a graph, a module or a list of tensors, got {shown_value(source)}")
    if isinstance(source, (str, Path)):
        loaded, own, first_line = _load(source, options)
        if alignment is not None and isinstance(loaded, TensorColumns):
            loaded = replace(loaded, alignments=None)
        return _Source(str(source), loaded, own if alignment is None else alignment, first_line)
    own = source.target.alignment if isinstance(source, Module) else 1
    kept = driver.load_module(source, Options()) if isinstance(source, Module) else source
    return _Source("tensors", kept, own if alignment is None else alignment)


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


@dataclass(frozen=True)
class _Request:
    """What a caller of `plan` asks for."""

    source: _Source
    capacity: Limit | Mapping[str, Limit] | None
    solver: str
    order_solver: str
    time_limit: float | None
    """Seconds."""
    threads: int | None
    begin: float
    """When it was asked."""

    def place(self, tensors: Sequence[Tensor] | None = None, share: float = 1) -> tuple[Placing, Plan]:
        """Addresses of the source's tensors, or of others, within this share of the time left."""
        if tensors is None:
            tensors = _tensors(self.source.loaded)
        left = None
        if self.time_limit is not None:
            left = share * max(0.0, self.time_limit - (time.perf_counter() - self.begin))
        placing = Placing(self.source.name, self.source.alignment, self.solver, left, self.threads)
        return placing, placing.place(tensors, self.source.first_line, self.capacity)

    def plan_graph(self, graph: Graph, reorder: bool) -> tuple[Placing, Plan]:
        """Addresses of a graph's storages, with `reorder` in an order of a lower peak.

        An order with fewer bytes live may need more once they have addresses: the given one is placed too where it may
        win, and is kept then.
        """
        given = range(len(graph.ops))
        if not reorder:
            placing, result = self.place(_storages(graph, given))
            return placing, replace(result, order=tuple(given))
        problem = order_problem(graph, self.source.alignment)
        order, bound = self._order(problem)
        moved = any(op != step for step, op in enumerate(order))
        placing, result = self.place(_storages(graph, order), 2 / 3 if moved else 1)
        if moved and result.peak > order_peak(problem, given):
            other, as_given = self.place(_storages(graph, given))
            if as_given.peak < result.peak:
                placing, result, order = other, as_given, given
        spaces = [replace(space, lower_bound=bound) for space in result.spaces]
        return placing, replace(result, order=tuple(order), spaces=spaces)

    def _order(self, problem: OrderProblem) -> tuple[Sequence[int], int]:
        """An order of a low peak, and bytes that no order's peak is below."""
        found = solve_order(problem, self.order_solver, time_limit=_part(self.time_limit, 1 / 2))
        bound = found.lower_bound
        if found.peak > bound:
            limit = _part(self.time_limit, 1 / 8)
            bound = max(bound, order_lower_bound(problem, found.order, work=BOUND_WORK, time_limit=limit))
        if order_peak(problem, found.order) != found.peak:
            raise RuntimeError(f"order solver {self.order_solver} states a wrong peak")
        return found.order, bound


def _part(time_limit: float | None, share: float) -> float | None:
    return None if time_limit is None else share * time_limit


def _tensors(loaded: Graph | Module | Sequence[Tensor]) -> Sequence[Tensor]:
    """What is placed: a module's lifetimes, a graph's storages in its own order, or the tensors themselves."""
    if isinstance(loaded, Module):
        return [Tensor(life.root.name, life.lower, life.upper, life.nbytes) for life in lifetimes(loaded.main)]
    return _storages(loaded, range(len(loaded.ops))) if isinstance(loaded, Graph) else loaded


def _storages(graph: Graph, order: Sequence[int]) -> TensorColumns:
    problem, storages = placement_problem(graph, order)
    buffers = BufferColumns.of(problem.buffers)
    names = [graph.storage_names[storage] for storage in storages]
    return TensorColumns(names, buffers.lowers, buffers.uppers, buffers.sizes, buffers.offsets)

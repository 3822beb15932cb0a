# SPDX-License-Identifier: Apache-2.0
"""A dataflow graph as an order problem, and an order of it as a placement problem.

A storage is live from the first op that touches it through the last, to the end if it holds an output. Storages of the
graph's inputs persist: they order the ops that read and write them but take no bytes of the plan. This is the definition
by which graphs are planned and measured; `memc.passes.order.problem` gives the same dependencies between the ops that write,
for the IR of the graph, in whose arena outputs take no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memc.frontend.graph import Graph
from memc.ir.liveness import align
from memc.solvers.order import OrderProblem
from memc.solvers.placement import BufferColumns, Problem


def order_problem(graph: Graph, alignment: int = 1) -> OrderProblem:
    """The orders that `graph` may run in. Storage `s` of the problem is storage `s` of the graph.

    Ops that touch a storage keep the given order wherever one of them writes it, and an op runs after those that make
    its input tensors. Sizes are rounded up to `alignment` bytes; those of persistent storages are 0.
    """
    persistent = graph.persistent()
    sizes = [0 if s in persistent else align(size, alignment) for s, size in enumerate(graph.storage_bytes)]
    touches = [[s for s in graph.touched(op) if s not in persistent] for op in graph.ops]
    kept = frozenset(graph.tensors[tensor].storage for tensor in graph.outputs) - persistent
    return OrderProblem(sizes, touches, _dependencies(graph), kept)


def _dependencies(graph: Graph) -> list[list[int]]:
    """Of each op, the earlier ops that it must follow."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    maker: dict[int, int] = {}
    after: list[list[int]] = []
    for index, op in enumerate(graph.ops):
        before = {maker[tensor] for tensor in op.inputs if tensor in maker}
        touched = graph.touched(op)
        before.update(writer[storage] for storage in touched if storage in writer)
        for storage in op.writes:
            before.update(readers.get(storage, ()))
        for storage in touched:
            readers.setdefault(storage, []).append(index)
        for storage in op.writes:
            writer[storage] = index
            readers[storage] = []
        maker.update((tensor, index) for tensor in op.outputs)
        after.append(sorted(before))
    return after


def placement_problem(
    graph: Graph, order: Sequence[int] | None = None, alignment: int = 1
) -> tuple[Problem, list[int]]:
    """The storages to place when the ops run in `order` (the given one by default), and which storages they are.

    Time is the position in the order. Buffer `i` of the problem is storage `storages[i]` of the graph.
    """
    sequence = range(len(graph.ops)) if order is None else order
    persistent = graph.persistent()
    lower: dict[int, int] = {}
    upper: dict[int, int] = {}
    for step, index in enumerate(sequence):
        for storage in graph.touched(graph.ops[index]):
            if storage not in persistent:
                lower.setdefault(storage, step)
                upper[storage] = step + 1
    for tensor in graph.outputs:
        if (storage := graph.tensors[tensor].storage) in upper:
            upper[storage] = len(graph.ops)
    storages = sorted(lower)
    columns = BufferColumns(
        np.array([graph.storage_bytes[s] for s in storages], np.int64),
        np.array([lower[s] for s in storages], np.int64),
        np.array([upper[s] for s in storages], np.int64),
    )
    return Problem(columns, alignment), storages

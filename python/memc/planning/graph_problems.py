# SPDX-License-Identifier: Apache-2.0
"""A dataflow graph as an order problem, and an order of it as a placement problem.

A storage is live from the first op that touches it through the last, to the end if it holds an output. Storages of the
graph's inputs persist: they order the ops that read and write them but take no bytes of the plan. This is the definition
by which graphs are planned and measured. What an op must follow is `memc.solvers.storage_dependencies`' definition, as for the IR; the
problem of a graph's IR differs in that outputs take no bytes of its arena and that views have no values there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memc.frontend.graph import Graph
from memc.ir.sizes import align
from memc.solvers.order import OrderProblem
from memc.solvers.placement import BufferColumns, Problem
from memc.solvers.storage_dependencies import WHOLE, Accesses, dependencies


def order_problem(graph: Graph, alignment: int = 1) -> OrderProblem:
    """The orders that `graph` may run in. Storage `s` of the problem is storage `s` of the graph.

    Ops that touch a storage keep the given order wherever one of them writes it, and an op runs after those that make
    its input tensors. Sizes are rounded up to `alignment` bytes; those of persistent storages are 0.
    """
    persistent = graph.persistent()
    sizes = [0 if s in persistent else align(size, alignment) for s, size in enumerate(graph.storage_bytes)]
    touches = [[s for s in graph.touched(op) if s not in persistent] for op in graph.ops]
    kept = frozenset(graph.tensors[tensor].storage for tensor in graph.outputs) - persistent
    return OrderProblem(sizes, touches, [sorted(row) for row in dependencies(_accesses(graph))], kept)


def _accesses(graph: Graph) -> Iterator[Accesses]:
    """What each op reads and writes: whole storages, and tensors that earlier ops make, views among them."""
    maker: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        reads = [(storage, WHOLE) for storage in graph.touched(op)]
        made = [maker[tensor] for tensor in op.inputs if tensor in maker]
        yield Accesses(made, reads, [(storage, WHOLE) for storage in op.writes])
        maker.update((tensor, index) for tensor in op.outputs)


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

# SPDX-License-Identifier: Apache-2.0
"""A dataflow graph gives one order problem, directly and through its IR."""

from __future__ import annotations

import random
from typing import Any

import pytest

from memc.frontend.graph import Graph, graph_of, import_graph
from memc.ir.core import Op
from memc.passes.order.problem import has_effects
from memc.passes.order.problem import order_problem as order_problem_of_function
from memc.planning.graph_problems import order_problem
from memc.solvers.order import OrderProblem, order_peak


def random_graph(seed: int) -> Graph:
    """Ops that make storages, overwrite them and make views of them; without outputs, which the IR puts elsewhere."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 99) for _ in range(12)]
    tensors: list[dict[str, Any]] = []

    def tensor(storage: int) -> int:
        tensors.append({"bytes": sizes[storage], "storage": storage, "storage_bytes": sizes[storage]})
        return len(tensors) - 1

    inputs = [tensor(0), tensor(1)]
    ops: list[dict[str, Any]] = []
    made = 2
    for index in range(rng.randint(4, 25)):
        read = rng.sample(range(len(tensors)), rng.randint(1, 2))
        kind = rng.choice(["make", "make", "view", "update"])
        if kind == "make" and made < len(sizes):
            outputs, writes = [tensor(made)], [made]
            made += 1
        elif kind == "view":
            read = read[:1]
            outputs, writes = [tensor(tensors[read[0]]["storage"])], []
        else:
            outputs, writes = [], [tensors[read[0]]["storage"]]
        item = {"name": f"op{index}", "target": f"aten.{kind}.default", "inputs": read}
        ops.append({**item, "outputs": outputs, "writes": writes})
    return graph_of({"inputs": inputs, "outputs": [], "tensors": tensors, "ops": ops}, "g")


def closures(problem: OrderProblem) -> list[set[int]]:
    """Of each op: all that must run before it."""
    found: list[set[int]] = []
    for after in problem.after:
        found.append(set(after).union(*(found[op] for op in after)))
    return found


def random_order(problem: OrderProblem, rng: random.Random) -> list[int]:
    order: list[int] = []
    while len(order) < len(problem.after):
        ready = [op for op, after in enumerate(problem.after) if op not in order and set(after) <= set(order)]
        order.append(rng.choice(ready))
    return order


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_give_the_same_dependencies_between_writes_and_the_same_peaks(seed: int) -> None:
    graph = random_graph(seed)
    direct, through = order_problem(graph), order_problem_of_function(import_graph(graph).main, 1)
    writing = {index for index, op in enumerate(graph.ops) if op.writes}
    before, before_in_ir = closures(direct), closures(through)
    for op in writing:
        assert before[op] & writing == before_in_ir[op] & writing
    rng = random.Random(seed)
    for _ in range(5):
        order = random_order(direct, rng)
        assert order_peak(direct, order) == order_peak(through, order)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten.view.default", False),
        ("aten.detach.default", False),
        ("aten._assert_async.msg", True),
        ("aten._print.default", True),
        ("log.value", True),
    ],
)
def test_views_have_no_effects(name: str, expected: bool) -> None:
    assert has_effects(Op(name, [], [])) == expected

# SPDX-License-Identifier: Apache-2.0
"""`plan` with `reorder`: never above the given order's plan, and an order that keeps the dependencies."""

import json
import random
from pathlib import Path

import pytest

from memc.frontend.graph import read_graph
from memc.ir.errors import BudgetError
from memc.planning import plan
from memc.planning.graph_problems import order_problem
from memc.solvers.order import order_peak


def grid(path: Path, side: int, seed: int) -> Path:
    """A graph file whose op (i, j) reads the results of (i - 1, j) and (i, j - 1), with sizes of 1 to 99 bytes."""
    rng = random.Random(seed)
    sizes = [8, *(rng.randint(1, 99) for _ in range(side * side))]
    ops = []
    for i in range(side):
        for j in range(side):
            above = [1 + (i - 1) * side + j] if i else []
            left = [i * side + j] if j else []
            ops.append({"name": f"op{i}.{j}", "inputs": above + left or [0], "outputs": [1 + i * side + j]})
    tensors = [{"bytes": size, "storage": index, "storage_bytes": size} for index, size in enumerate(sizes)]
    path.write_text(json.dumps({"inputs": [0], "outputs": [side * side], "tensors": tensors, "ops": ops}))
    return path


@pytest.mark.parametrize("solver", ["first-fit", "first-fit-lifetime", "best-fit", "auto"])
def test_reordered_plans_are_never_above_the_given_order(tmp_path: Path, solver: str) -> None:
    lower = 0
    for seed in range(8):
        path = grid(tmp_path / "grid.json", 8, seed)
        given = plan(path, solver=solver)
        found = plan(path, reorder=True, solver=solver, order_solver="list")
        assert found.peak <= given.peak, seed
        assert found.lower_bound <= found.peak
        assert found.order is not None
        assert order_peak(order_problem(read_graph(path)), found.order) <= found.peak
        lower += found.peak < given.peak
    assert lower >= 4


def test_the_given_order_is_kept_where_it_wins(tmp_path: Path) -> None:
    """The order found has fewer bytes live, and needs more by first fit."""
    path = grid(tmp_path / "grid.json", 8, 6)
    given = plan(path, solver="first-fit")
    found = plan(path, reorder=True, solver="first-fit", order_solver="list")
    assert found.order == given.order == tuple(range(64))
    assert (found.offsets, found.peak) == (given.offsets, given.peak)
    assert found.lower_bound < given.lower_bound
    with pytest.raises(BudgetError, match=f"the least peak found is {given.peak} bytes"):
        plan(path, reorder=True, solver="first-fit", order_solver="list", capacity=given.peak - 1)

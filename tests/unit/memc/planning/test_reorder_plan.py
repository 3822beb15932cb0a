# SPDX-License-Identifier: Apache-2.0
"""`plan` with `reorder`: never above the given order's plan, and an order that keeps the dependencies."""

import json
import random
from pathlib import Path

import pytest

from memc.frontend.graph import read_graph
from memc.ir.errors import BudgetError
from memc.planning import plan, planner
from memc.planning.graph_problems import order_problem
from memc.solvers.order import OrderSolution, order_peak


def grid(path: Path, side: int, seed: int, columns: int | None = None) -> Path:
    """A graph file whose op (i, j) reads the results of (i - 1, j) and (i, j - 1), with sizes of 1 to 99 bytes."""
    width = side if columns is None else columns
    rng = random.Random(seed)
    sizes = [8, *(rng.randint(1, 99) for _ in range(side * width))]
    ops = []
    for i in range(side):
        for j in range(width):
            above = [1 + (i - 1) * width + j] if i else []
            left = [i * width + j] if j else []
            ops.append({"name": f"op{i}.{j}", "inputs": above + left or [0], "outputs": [1 + i * width + j]})
    tensors = [{"bytes": size, "storage": index, "storage_bytes": size} for index, size in enumerate(sizes)]
    path.write_text(json.dumps({"inputs": [0], "outputs": [side * width], "tensors": tensors, "ops": ops}))
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


GRIDS = [
    (20, 20),
    (20, 60),
    (60, 20),
    (33, 41),
    (41, 33),
    (50, 50),
    (4, 200),
    (200, 4),
    (47, 26),
    (26, 47),
    (30, 31),
    (9, 99),
]


def test_large_grids_in_an_order_that_may_be_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Column by column: lower than row by row where rows are long, and higher where columns are."""
    kept = 0
    for seed, (rows, columns) in enumerate(GRIDS):
        path = grid(tmp_path / "grid.json", rows, seed, columns)
        problem = order_problem(read_graph(path))
        order = [i * columns + j for j in range(columns) for i in range(rows)]
        found = OrderSolution(order, order_peak(problem, order), 0)
        monkeypatch.setattr(planner, "solve_order", lambda *given, found=found, **options: found)
        monkeypatch.setattr(planner, "order_lower_bound", lambda *given, **options: 0)
        given, result = plan(path, solver="first-fit"), plan(path, reorder=True, solver="first-fit")
        assert result.order is not None
        assert order_peak(problem, result.order) <= result.peak <= given.peak, (rows, columns)
        assert result.peak == max(at + tensor.size for at, tensor in zip(result.offsets, result.tensors))
        kept += result.order == given.order
    assert 3 <= kept <= 9


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

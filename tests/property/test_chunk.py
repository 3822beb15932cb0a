# SPDX-License-Identifier: Apache-2.0
"""Random graphs over rows: every stretch in any number of slices computes what it computed whole, and the pass raises no peak."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify
from memc.passes.chunk.row_forms import lead_of
from memc.passes.chunk.slices import bounds_of, moves_assignments, run_in_slices
from memc.passes.chunk.stretch import Graph, find_stretch
from memc.passes.manager import PassManager
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.canonicalize import remove_dead

from .graphs import inputs_of, modules

LEADS = ((6,), (7,), (2, 3), (3, 4), (5, 2), (2, 2, 2))
"""Axes of the rows."""
UNARY = ("tanh", "sigmoid", "neg", "abs")


class _Rows:
    """A graph of values with the same rows, and of weights."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lead = draw(st.sampled_from(LEADS))
        self.module = Module([Function([])])
        self.function = self.module.main
        self.b = IRBuilder(self.module, self.function, self.function.ops)
        self.pool = [self.param("x", (*self.lead, draw(st.integers(2, 4))))]
        self.sums: list[Value] = []

    def param(self, name: str, shape: tuple[int, ...]) -> Value:
        value = Value(name, TensorType(DType.F32, shape), role=Role.INPUT)
        self.function.params.append(value)
        return value

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one(self) -> Value:
        return self.pool[-1 - self.number(0, min(3, len(self.pool) - 1))]

    def grow(self) -> None:
        """Add an op."""
        v = self.one()
        lead = len(self.lead) if v.type.shape[: len(self.lead)] == self.lead else 1
        rest, name = v.type.shape[lead:], f"p{len(self.function.params)}"
        kinds = [
            "unary",
            "binary",
            "weight",
            "product",
            "sum",
            "gradient",
            "reshape",
            "transpose",
            "softmax",
            "slice",
            "cut",
        ]
        kind = kinds[self.number(0, len(kinds) - 1)]
        b = self.b
        if kind == "unary" or not rest:
            self.pool.append(b.op(UNARY[self.number(0, 3)], [v]))
        elif kind == "binary":
            others = [o for o in self.pool if o.type == v.type]
            self.pool.append(b.op("mul", [v, others[self.number(0, len(others) - 1)]]))
        elif kind == "weight":
            repeated = [(1,) * lead + rest, rest, (*v.type.shape[:lead], *[1] * len(rest))][self.number(0, 2)]
            self.pool.append(b.op("add", [v, self.param(name, repeated)]))
        elif kind == "product" and v.type.rank >= 2:
            w = self.param(name, (rest[-1], self.number(2, 9)))
            self.pool.append(b.op("matmul", [v, w], transpose_a=False, transpose_b=False))
        elif kind == "sum":
            axes = tuple(range(lead)) if self.number(0, 1) else (v.type.rank - 1,)
            made = b.op("reduce_sum", [v], axes=axes, keepdims=True)
            (self.sums if axes[0] == 0 else self.pool).append(made)
        elif kind == "gradient":
            rows = int(np.prod(v.type.shape[:lead]))
            flat = b.op("reshape", [v], shape=(rows, v.type.elements // rows))
            others = [o for o in self.pool if lead_of(o.type.shape, rows) is not None]
            other = others[self.number(0, len(others) - 1)]
            other = b.op("reshape", [other], shape=(rows, other.type.elements // rows))
            self.sums.append(b.op("matmul", [flat, other], transpose_a=True, transpose_b=False))
        elif kind == "reshape":
            rows = int(np.prod(self.lead))
            shape = (rows, *rest) if lead > 1 else (*self.lead, *rest)
            self.pool.append(b.op("reshape", [v], shape=shape))
        elif kind == "transpose" and len(rest) > 1:
            self.pool.append(b.op("transpose", [v], perm=(*range(lead), lead + 1, lead, *range(lead + 2, v.type.rank))))
        elif kind == "softmax":
            self.pool.append(b.op("softmax", [v], axis=v.type.rank - 1))
        elif kind == "slice" and rest[-1] > 1:
            starts, stops = (0,) * (v.type.rank - 1) + (1,), v.type.shape
            self.pool.append(b.op("slice", [v], starts=starts, stops=stops, steps=(1,) * v.type.rank))
        elif kind == "cut" and v.type.shape[0] > 2:
            starts = (1, *[0] * (v.type.rank - 1))
            part = b.op("slice", [v], starts=starts, stops=v.type.shape, steps=(1,) * v.type.rank)
            self.sums.append(b.op("reduce_sum", [part], axes=(0,), keepdims=False))


@st.composite
def graphs(draw: st.DrawFn) -> Module:
    rows = _Rows(draw)
    for _ in range(rows.number(3, 14)):
        rows.grow()
    results = [rows.pool[-1], *rows.sums]
    results += [v for v in rows.pool[1:-1] if rows.number(0, 4) == 0]
    rows.function.returns = [v for v in dict.fromkeys(results) if v.op is not None]
    remove_dead(rows.module, rows.function)
    return rows.module


def data_of(module: Module, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in module.main.params}


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-4)


@settings(max_examples=150)
@given(graphs(), st.integers(2, 5), st.integers(1, 4), st.data())
def test_slices_compute_the_same(module: Module, slices: int, grain: int, data: st.DataObject) -> None:
    wanted = evaluate(module, inputs := data_of(module, slices))
    function = module.main
    seeds = [op.result for op in function.ops if op.result.type.rank > 1]
    if not seeds:
        return
    stretch = find_stretch(Graph.of(function), data.draw(st.sampled_from(seeds)))
    if isinstance(stretch, str) or moves_assignments(stretch):
        return
    bounds = bounds_of(stretch.rows, slices, grain)
    assert [b[0] for b in bounds] == [0, *(b[1] for b in bounds[:-1])] and bounds[-1][1] == stretch.rows
    inside = {v.name for v in stretch.inside}
    run_in_slices(module, function, stretch, bounds)
    verify(module)
    assert not inside & {v.name for op in function.ops for v in op.results}
    same(evaluate(module, inputs), wanted)
    PassManager.parse("materialize-returns,fuse,in-place,assign-addresses{alignment=4}").run(module)
    same(evaluate_in_arena(module, inputs), wanted)


@settings(max_examples=60)
@given(graphs())
def test_pass_never_raises_the_peak(module: Module) -> None:
    wanted = evaluate(module, inputs := data_of(module, 1))
    whole = copy.deepcopy(module)
    PassManager.parse("chunk{slowdown=1000 alignment=1 target=none}").run(module)
    same(evaluate(module, inputs), wanted)
    for each in (whole, module):
        PassManager.parse("fuse{alignment=1 target=none}").run(each)
    assert planned_peak(module.main, 1) <= planned_peak(whole.main, 1)


@settings(max_examples=40)
@given(modules())
def test_any_graph(module: Module) -> None:
    inputs = inputs_of(module)
    wanted = evaluate(module, inputs)
    PassManager.parse("chunk{slowdown=1000 alignment=1}").run(module)
    for name, value in evaluate(module, inputs).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-3, atol=1e-4)

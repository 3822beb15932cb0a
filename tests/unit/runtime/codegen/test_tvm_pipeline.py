# SPDX-License-Identifier: Apache-2.0
"""TVM's passes give right code: places in memory and shared expressions."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import flat_indices, schedule_cpu, schedule_gpu, tvm_pipeline

build = importlib.import_module("memc.runtime.codegen.build")

GPU = CodeTarget.create("cuda")


def lowered(func: tirx.PrimFunc, target: CodeTarget = GPU) -> tvm.ir.IRModule:
    """A kernel scheduled and without blocks, as it is before its tensors are flattened."""
    module = schedule_gpu.schedule(func, target) if target.kind == "cuda" else schedule_cpu.schedule(func)
    module = tirx.transform.BindTarget(build.tvm_target(target))(module)
    return tvm.ir.transform.Sequential(tvm_pipeline.before_flattening())(module)


def places(func: tirx.PrimFunc, elements: int) -> Any:
    """Where each thread of the first block reads operand A, by evaluating the index in Python."""
    found = [a for a in flat_indices.accesses(func).found if a.buffer.name.startswith("A")]
    assert len(found) == 1
    (index,) = found[0].indices
    text = str(index).replace("T.", "").replace("threadIdx_x", "t").replace("blockIdx_x", "b")
    names = {"call_pure_extern": lambda _type, _name, value: value, "b": 0}
    return np.array([eval(text, {**names, "t": t}) for t in range(elements)])


@pytest.mark.parametrize("shape", [(7, 10), (8, 10), (6, 6), (4, 12), (5, 20)])
@pytest.mark.parametrize("shift", [(2, 3), (1, 1), (0, 3), (2, 0), (-1, 1), (3, 4)])
def test_rows_and_columns_wrap_to_their_own_places(shape: tuple[int, int], shift: tuple[int, int]) -> None:
    a = te.placeholder((4, 5), "float32", name="A")

    def wrapped(i: Any, j: Any) -> Any:
        return a[tirx.floormod(i + shift[0], 4), tirx.floormod(j + shift[1], 5)]

    func = te.create_prim_func([a, te.compute(shape, wrapped, name="result")])
    flat = tvm_pipeline.flatten(lowered(func), "cuda")["main"]
    rows, columns = np.indices(shape)
    expected = (rows + shift[0]) % 4 * 5 + (columns + shift[1]) % 5
    np.testing.assert_array_equal(places(flat, rows.size), expected.ravel())


def test_a_row_that_wraps_by_one_of_many_columns() -> None:
    """So few places differ that a sample would miss them."""
    a = te.placeholder((70, 50021), "float32", name="A")
    func = te.create_prim_func(
        [a, te.compute(a.shape, lambda i, j: a[i, tirx.floormod(j + 50020, 50021)], name="result")]
    )
    flat = tvm_pipeline.flatten(lowered(func), "cuda")["main"]
    (read,) = [x for x in flat_indices.accesses(flat).found if x.buffer.name.startswith("A")]
    points = np.random.default_rng(1).integers(0, 70 * 50021, 100)
    for place in [*points, *(50021 * n for n in range(1, 70))]:
        text = str(read.indices[0]).replace("T.", "")
        names = {"call_pure_extern": lambda _type, _name, value: value}
        variables = {"threadIdx_x": place % 256, "blockIdx_x": place // 256}
        row, column = divmod(int(place), 50021)
        assert eval(text, {**names, **variables}) == row * 50021 + (column + 50020) % 50021


def test_indices_without_shifts_stay_as_simple() -> None:
    a = te.placeholder((6, 8), "float32", name="A")
    func = te.create_prim_func([a, te.compute((6, 8), lambda i, j: a[i, j] + 1.0, name="result")])
    assert "memc_same" not in tvm_pipeline.flatten(lowered(func), "cuda").script()


@pytest.mark.parametrize("target", [GPU, CodeTarget()], ids=["cuda", "llvm"])
def test_an_expression_in_a_let_and_twice_after_it(target: CodeTarget) -> None:
    """TVM alone would move its definition behind its first use."""
    a = tirx.decl_buffer((64,), "float32", name="A")
    b = tirx.decl_buffer((64,), "float32", name="B")
    block, thread, value = (tirx.Var(n, t) for n, t in (("block", "int32"), ("thread", "int32"), ("v", "float32")))
    place = block * 8 + thread
    first = tirx.Let(value, tirx.exp(a.vload(thread)), value * a.vload(place))
    body: Any = tirx.SeqStmt(
        [
            b.vstore(thread, first),
            b.vstore(place, a.vload(place) + 1.0),
            b.vstore(place, a.vload(place) + b.vload(place)),
        ]
    )
    for variable in (thread, block):
        body = tirx.For(variable, 0, 8, tirx.ForKind.SERIAL, body)
    func = tirx.PrimFunc([a, b], body).with_attr("global_symbol", "main")
    alone = tirx.transform.CommonSubexprElim()(tvm.ir.IRModule({"main": func}))["main"]
    assert not tvm_pipeline.is_defined(alone), "TVM no longer has this fault: the pipeline need not look for it"
    module = tvm_pipeline.share_expressions(tvm.ir.IRModule({"main": func}))
    assert tvm_pipeline.is_defined(module["main"])


def test_shared_expressions_stay_shared() -> None:
    a = tirx.decl_buffer((64,), "float32", name="A")
    i = tirx.Var("i", "int32")
    place = i * 3 + 1
    body = tirx.For(
        i, 0, 8, tirx.ForKind.SERIAL, tirx.SeqStmt([a.vstore(place, a.vload(place)), a.vstore(place, a.vload(place))])
    )
    func = tirx.PrimFunc([a], body).with_attr("global_symbol", "main")
    assert "cse_v" in tvm_pipeline.share_expressions(tvm.ir.IRModule({"main": func})).script()


def test_points_evaluate_what_indices_are_made_of() -> None:
    """Against Python's own integers."""
    i = tirx.Var("i", "int32")
    exprs = [
        (tirx.truncdiv(i - 7, 3), lambda n: int((n - 7) / 3)),
        (tirx.truncmod(i - 7, 3), lambda n: (n - 7) - 3 * int((n - 7) / 3)),
        (tirx.floordiv(i - 7, 3), lambda n: (n - 7) // 3),
        (tirx.floormod(i - 7, 3), lambda n: (n - 7) % 3),
        (tirx.Select(i < 5, i * 2, tirx.min(i, 6)), lambda n: n * 2 if n < 5 else min(n, 6)),
        (tirx.if_then_else(tirx.all(i > 2, tirx.Not(i == 4)), i, 0), lambda n: n if n > 2 and n != 4 else 0),
    ]
    known = flat_indices.Accesses(extents={i: 20})
    for expr, wanted in exprs:
        found = flat_indices.Points(known, [expr]).of(expr)
        assert list(np.broadcast_to(found, 20)) == [wanted(n) for n in range(20)]


def test_conditions_bound_what_is_compared() -> None:
    i = tirx.Var("i", "int32")
    a = tirx.decl_buffer((10,), "float32", name="A")
    known = flat_indices.Accesses(extents={i: 20})
    for condition, same in itertools.product([True, False], [True]):
        conditions = ((i < 10, condition),)
        before = flat_indices.Access(a, (tirx.floormod(i, 10),), conditions)
        after = flat_indices.Access(a, (i,), conditions)
        assert flat_indices.is_same_place(before, after, known, "cuda") == (condition and same)


@pytest.mark.parametrize("target", [GPU, CodeTarget.create("llvm")], ids=["cuda", "llvm"])
def test_what_allocates_nothing_needs_no_compaction(target: CodeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that is left out would have changed nothing, and the others get what it makes of them."""
    parts = [te.placeholder((2, 4), "float32", name=f"P{n}") for n in range(5)]
    joined = te.compute(
        (2, 20), lambda i, j: tirx.if_then_else(j < 4, parts[0][i, j], parts[4][i, j - 16]), name="result"
    )
    k = te.reduce_axis((0, 600), name="k")
    a = te.placeholder((6, 600), "float32", name="A")
    total = te.compute((6,), lambda i: te.sum(a[i, k], axis=[k]), name="reduced")
    funcs = {"plain": te.create_prim_func([*parts, joined]), "sum": te.create_prim_func([a, total])}
    compact = tvm.ir.transform.Sequential([tvm.s_tir.transform.CompactBufferAllocation()])
    for name, func in funcs.items():
        with monkeypatch.context() as patch:
            patch.setattr(tvm_pipeline, "compact_allocations", lambda module, _context: compact(module))
            expected = lowered(func, target)
        assert tvm_ffi.structural_equal(lowered(func, target), expected), name


def test_accesses_are_known_with_their_conditions() -> None:
    a = tirx.decl_buffer((64,), "float32", name="A")
    i = tirx.Var("i", "int32")
    chosen = tirx.if_then_else(i < 3, a.vload(i), a.vload(i + 1))
    inner = tirx.IfThenElse(i < 5, a.vstore(i, chosen), a.vstore(i + 2, a.vload(i + 3)))
    func = tirx.PrimFunc([a], tirx.For(i, 0, 8, tirx.ForKind.SERIAL, inner))
    found = flat_indices.accesses(func)
    assert [(str(x.indices[0]), [holds for _, holds in x.conditions]) for x in found.found] == [
        ("i", [True, True]),
        ("i + 1", [True, False]),
        ("i", [True]),
        ("i + 3", [False]),
        ("i + 2", [False]),
    ]
    assert found.extents == {i: 8}

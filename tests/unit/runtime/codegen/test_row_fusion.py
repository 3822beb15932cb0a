# SPDX-License-Identifier: Apache-2.0
"""Kernels of ops on the same rows against the ops one by one: on the CPU, where a team has one thread, and CUDA's source."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import memc
from memc.ir.core import Op
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import cubin
from memc.runtime.codegen.kernel_table import KernelTable
from memc.runtime.codegen.row_plan import plan_rows

Array = npt.NDArray[Any]

JOINED = pipeline(2, "llvm") + ",join-rows"

NORMALIZED = """
func @main(%x: T[R,C] {role = input}, %g: T[C] {role = input}, %b: T[C] {role = input}) -> (T[R,C], T[R,C]) {
  %e = add(%x, %b) : T[R,C]
  %s = softmax(%e) {axis = 1} : T[R,C]
  %y = layer_norm(%x, %g, %b) {axis = 1, epsilon = 0.00001} : T[R,C]
  return %s, %y
}
"""

MASKED = """
func @main(%x: f32[2,3,5,16] {role = input}, %mask: f32[2,1,1,16] {role = input}, %g: f32[5,1] {role = input}) -> (f32[2,3,5,16], f32[2,3,5,16]) {
  %a = add(%x, %mask) : f32[2,3,5,16]
  %s = softmax(%a) {axis = 3} : f32[2,3,5,16]
  %t = reduce_sum(%x) {axes = [2, 3], keepdims = true} : f32[2,3,1,1]
  %d = sub(%x, %t) : f32[2,3,5,16]
  %e = mul(%d, %g) : f32[2,3,5,16]
  return %s, %e
}
"""

SHORT = """
func @main(%x: f32[7,5] {role = input}) -> f32[7,5] {
  %a = exp(%x) plan {joint = 0, rows = 1} : f32[7,5] @arena[0]
  %m = reduce_max(%a) {axes = [1], keepdims = true} plan {joint = 0, rows = 1} : f32[7,1] @arena[192]
  %d = div(%a, %m) plan {in_place = 0, joint = 0, rows = 1} : f32[7,5] alias %a[0] @arena[0]
  %s = reduce_sum(%d) {axes = [1], keepdims = true} plan {joint = 0, rows = 1} : f32[7,1] @arena[192]
  %r = sub(%d, %s) plan {joint = 0, rows = 1} : f32[7,5]
  return %r
}
"""


def normalized(dtype: str, rows: int, columns: int) -> str:
    return NORMALIZED.replace("T[", f"{dtype}[").replace("[R,C]", f"[{rows},{columns}]").replace("[C]", f"[{columns}]")


def inputs_of(module: Module) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {p.name: rng.normal(size=p.type.shape).astype(p.type.dtype.numpy) for p in module.main.params}


def kernels_of(module: Module) -> list[list[Op]]:
    found: dict[Any, list[Op]] = {}
    for op in module.main.ops:
        if op.plan.rows is not None:
            found.setdefault(op.plan.joint, []).append(op)
    return list(found.values())


def run(text: str, path: Path, passes: str) -> tuple[list[Array], list[Array], Module]:
    """What the compiled module gives, what numpy does, and the module as it was compiled."""
    module = parse(text, "test")
    inputs = inputs_of(module)
    expected = list(evaluate(module, inputs).values())
    done = memc.compile(module, path, pass_pipeline=passes)
    return list(done.load().run_numpy(inputs).values()), expected, done.module


@pytest.mark.parametrize(("dtype", "error"), [("f32", 2e-6), ("f64", 4e-15), ("f16", 1e-3), ("bf16", 8e-3)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (5, 35), (3, 130)])
def test_softmax_and_layer_norm_in_one_kernel(
    tmp_path: Path, dtype: str, error: float, rows: int, columns: int
) -> None:
    found, expected, module = run(normalized(dtype, rows, columns), tmp_path / "m.memc", JOINED)
    (ops,) = kernels_of(module)
    assert len(ops) == len([op for op in module.main.ops if op.name != "constant"]) >= 7
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=error, atol=error)


def test_masks_and_scales_are_read_where_numpy_broadcasts_them(tmp_path: Path) -> None:
    found, expected, module = run(MASKED, tmp_path / "m.memc", JOINED)
    assert sorted(ops[0].plan.rows for ops in kernels_of(module)) == [2, 3]
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_rows_that_stay_in_registers(tmp_path: Path) -> None:
    found, expected, module = run(SHORT, tmp_path / "m.memc", "canonicalize")
    (ops,) = kernels_of(module)
    plan = plan_rows(ops, lambda value: value.name == "r", "llvm")
    assert plan.stays and [v.name for v in plan.parameters] == ["x", "r"]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)


def test_what_other_ops_read_is_stored() -> None:
    module = parse(SHORT, "test")
    ops = list(module.main.ops)
    plan = plan_rows(ops, lambda value: value.name in "mr", "cuda")
    assert [v.name for v in plan.parameters] == ["x", "m", "r"]
    long = plan_rows(ops, lambda value: value.name == "r", "llvm")
    assert long.team == 1 and plan.team == 32


@pytest.mark.parametrize(
    ("columns", "team", "stays"),
    [(16, 32, True), (256, 32, True), (768, 256, True), (4096, 1024, True), (20000, 1024, False)],
)
def test_teams(columns: int, team: int, stays: bool) -> None:
    module = parse(SHORT.replace("7,5]", f"7,{columns}]"), "test")
    plan = plan_rows(module.main.ops, lambda value: value.name == "r", "cuda")
    assert (plan.team, plan.stays) == (team, stays)
    assert [v.name for v in plan.stored] == (["r"] if stays else ["a", "d", "r"])


def test_one_kernel_serves_runs_that_store_the_same() -> None:
    module, other = parse(SHORT, "test"), parse(SHORT, "test")
    table = KernelTable(CodeTarget.create("cuda", "sm_90"))

    def name(ops: list[Op], stored: str) -> str:
        return table.rows(ops, plan_rows(ops, lambda value: value.name in stored, "cuda"))

    assert name(module.main.ops, "r") == name(other.main.ops, "r") != name(other.main.ops, "mr")


def test_every_level_for_cuda_that_joins_kernels_joins_rows() -> None:
    for level in (2, 3):
        assert ",join-rows,join-kernels" in pipeline(level, "cuda")
        assert "join-rows" not in pipeline(level, "llvm")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "team"), [("f32", 9, 197, 32), ("bf16", 12, 768, 256), ("f64", 2, 10000, 1024)]
)
def test_cuda_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, rows: int, columns: int, team: int
) -> None:
    """One kernel, of which nvcc is not told that what it reads and what it writes lie apart."""
    sources: list[str] = []
    compiled = cubin.compile_source

    def noted(source: str, arch: str) -> bytes:
        sources.append(source)
        return compiled(source, arch)

    monkeypatch.setattr(cubin, "compile_source", noted)
    memc.compile(parse(normalized(dtype, rows, columns), "test"), tmp_path / "m.memc", target="cuda", arch="sm_90")
    (signature,) = re.findall(r"__global__ (.*)\{$", sources[-1], re.MULTILINE)
    assert " rows_" in signature and "__restrict__" not in signature
    body = sources[-1][sources[-1].rindex(signature) :]
    assert len(re.findall(rf"memc_team_(?:sum|max)_float(?:32|64)\([^;]*, {team}\)", body)) == 4
    assert ("threadIdx.y" in body) == (team == 32)


def test_a_softmax_of_a_training_step_and_its_gradient() -> None:
    text = """
func @main(%x: f32[6,40] {role = input}, %w: f32[40,40] {role = weight}) -> f32[6,40] {
  %0 = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[6,40]
  %1 = softmax(%0) {axis = 1} : f32[6,40]
  %2 = matmul(%1, %w) {transpose_a = false, transpose_b = false} : f32[6,40]
  return %2
}
"""
    module = parse(text, "test")
    module.weights = {"w": np.zeros((40, 40), np.float32)}
    memc.BuildGradient().apply(module)
    module.target = Target.of("cuda")
    PassManager.parse(pipeline(2, "cuda")).run(module)
    last = [[op.name if op.region is None else op.region.ops[-1].name for op in ops] for ops in kernels_of(module)]
    assert ["reduce_max", "exp", "reduce_sum", "div"] in last
    assert ["reduce_sum", "mul"] in last


ROW_BY_ROW = "materialize-returns,canonicalize,in-place,assign-addresses{solver=auto},join-rows"


def random_chain(seed: int) -> str:
    """Ops on rows, numbers of rows and columns, each on results of the ones before; the last few results are returned."""
    rng = np.random.default_rng(seed)
    whole, number, vector = "f32[6,24]", "f32[6,1]", "f32[24]"
    known = {whole: ["x"], number: ["n"], vector: ["v"]}
    lines: list[str] = []
    for count in range(12):
        kind = whole if rng.random() < 0.6 else number
        a, b = (str(rng.choice(known[kind])) for _ in range(2))
        choice = rng.random()
        if kind == number and choice < 0.7:
            how = str(rng.choice(["sum", "max", "min"]))
            code = f"reduce_{how}(%{rng.choice(known[whole])}) {{axes = [1], keepdims = true}}"
        elif choice < 0.3:
            code = f"{rng.choice(['tanh', 'neg'])}(%{a})"
        elif kind == whole and choice < 0.8:
            code = f"sub(%{a}, %{rng.choice(known[number if rng.random() < 0.7 else vector])})"
        else:
            code = f"add(%{a}, %{b})"
        lines.append(f"  %r{count} = {code} : {kind}\n")
        known[kind].append(f"r{count}")
    results = ", ".join(f"%{known[kind][-1]}" for kind in (whole, number))
    head = f"func @main(%x: {whole} {{role = input}}, %n: {number} {{role = input}}, %v: {vector} {{role = input}})"
    return f"{head} -> ({whole}, {number}) {{\n{''.join(lines)}  return {results}\n}}\n"


@pytest.mark.parametrize("passes", [ROW_BY_ROW, JOINED])
def test_random_chains(tmp_path: Path, passes: str) -> None:
    joined = 0
    for seed in range(32, 44):  # Some of which would overwrite other rows if bytes were not looked at.
        found, expected, module = run(random_chain(seed), tmp_path / f"{seed}.memc", passes)
        joined += sum(map(len, kernels_of(module)))
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4, err_msg=f"seed {seed}")
    assert joined > 12

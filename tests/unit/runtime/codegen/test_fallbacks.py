# SPDX-License-Identifier: Apache-2.0
"""Kernels that do not compile give way to plainer ones, or their ops are compiled one by one: with right results."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

import memc
from memc.ir.core import FUSED, Role
from memc.ir.errors import CodegenError, UnsupportedError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.runtime.codegen import cubin, schedule_cpu
from memc.runtime.codegen import kernel_table as table
from memc.runtime.codegen.fallbacks import find_broken

pytestmark = pytest.mark.retreats

CHAIN = """
func @main(%x: f32[1,3,6,8] {role = input}, %w: f32[4,3,3,3] {role = input}, %s: f32[4,1,1] {role = input})
    -> (f32[1,4,6,8] {name = "y"}, f32[1,4,6] {name = "z"}) {
  %a = conv(%x, %w) {group = 1, strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[1,4,6,8]
  %b = relu(%a) : f32[1,4,6,8]
  %y = mul(%b, %s) : f32[1,4,6,8]
  %e = exp(%y) : f32[1,4,6,8]
  %z = reduce_sum(%e) {axes = [3], keepdims = false} : f32[1,4,6]
  return %y, %z
}
"""

Broken = Callable[[tvm.tirx.PrimFunc], bool]


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """memc's warnings reach `caplog`, whatever commands that ran before have set up."""
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING, "memc")


def reduces(func: tvm.tirx.PrimFunc) -> bool:
    """Whether a kernel has an epilogue behind a reduction: of `CHAIN`, the fused convolution."""
    return 'sblock("reduced")' in func.script() and 'sblock("result")' in func.script()


def anything(func: tvm.tirx.PrimFunc) -> bool:
    return True


def refuse(monkeypatch: pytest.MonkeyPatch, broken: Broken, schedules: Sequence[str]) -> None:
    """Make some of the schedules fail for some kernels."""
    for name in schedules:
        real = getattr(schedule_cpu, name)

        def scheduled(func: tvm.tirx.PrimFunc, real: Any = real) -> tvm.ir.IRModule:
            if broken(func):
                raise RuntimeError("the schedule\nis refused\nfor a test")
            return real(func)

        monkeypatch.setattr(schedule_cpu, name, scheduled)


def spoil(monkeypatch: pytest.MonkeyPatch, broken: Broken, schedules: Sequence[str]) -> None:
    """Make some of the schedules give code for some kernels that fails when all of them are built."""
    for name in schedules:
        real = getattr(schedule_cpu, name)

        def scheduled(func: tvm.tirx.PrimFunc, real: Any = real) -> tvm.ir.IRModule:
            wrong, module = broken(func), real(func)
            if wrong:
                extra = tirx.Evaluate(tirx.call_extern("int32", "abs", tirx.Var("undefined", "int32")))
                main = module["main"]
                module = tvm.ir.IRModule({"main": main.with_body(tirx.SeqStmt([extra, main.body]))})
            return module

        monkeypatch.setattr(schedule_cpu, name, scheduled)


def inputs_of(module: Module) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    params = module.main.params_of(Role.INPUT)
    return {p.name: rng.normal(size=p.type.shape).astype(p.type.dtype.numpy) for p in params}


def check(done: memc.Compilation, text: str = CHAIN) -> None:
    module = parse(text, "test")
    inputs = inputs_of(module)
    found = done.load().run_numpy(inputs)
    for name, expected in evaluate(module, inputs).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def groups(module: Module) -> list[list[str]]:
    return [[inner.name for inner in op.region.ops] for op in module.main.ops if op.name == FUSED]


def compiled(text: str = CHAIN, **options: Any) -> memc.Compilation:
    return memc.compile(parse(text, "test"), kernels="generated", **options)


@pytest.mark.parametrize("fail", [refuse, spoil])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_plain_schedules(monkeypatch, caplog, fail: Any, level: int) -> None:
    fail(monkeypatch, anything, ["schedule"])
    done = compiled(opt_level=level)
    check(done)
    assert all(r.levelno == logging.WARNING for r in caplog.records) and len(caplog.records) == done.report.kernels
    assert "the kernel's schedule does not compile" in caplog.text and "using a plain, slower one" in caplog.text
    if level == 2:
        assert groups(done.module) == [["conv", "relu", "mul"], ["exp", "reduce_sum"]]
        assert "conv + relu + mul (%" in caplog.text


@pytest.mark.parametrize("fail", [refuse, spoil])
def test_groups_of_which_no_kernel_compiles_are_planned_again_op_by_op(monkeypatch, caplog, fail: Any) -> None:
    fused = compiled()
    fail(monkeypatch, reduces, ["schedule", "schedule_plainly"])
    done = compiled()
    check(done)
    assert groups(done.module) == [["exp", "reduce_sum"]]
    assert [op.name for op in done.module.main.ops if op.name != FUSED] == ["conv", "relu", "mul"]
    assert len(caplog.records) == 1
    assert re.search(r"conv \+ relu \+ mul .*no kernel compiles for the fused ops.*without fusing", caplog.text)
    # The plan is another, in which what lies between the ops has bytes; the reports say so.
    assert done.report.arena_bytes >= fused.report.arena_bytes
    assert "apart=" in done.report.pipeline and "apart=" not in fused.report.pipeline


def test_all_equal_groups_are_split(monkeypatch, caplog) -> None:
    half = """
  %a{0} = conv(%{1}, %w) {{group = 1, strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]}} : f32[1,3,6,8]
  %b{0} = relu(%a{0}) : f32[1,3,6,8]
  %c{0} = mul(%b{0}, %s) : f32[1,3,6,8]"""
    text = f"""
func @main(%x: f32[1,3,6,8] {{role = input}}, %w: f32[3,3,3,3] {{role = input}}, %s: f32[3,1,1] {{role = input}})
    -> (f32[1,3,6,8] {{name = "y"}}) {{{half.format(0, "x")}{half.format(1, "c0")}{half.format(2, "c1")}
  return %c2
}}
"""
    assert len(groups(compiled(text).module)) == 3
    refuse(monkeypatch, reduces, ["schedule", "schedule_plainly"])
    done = compiled(text)
    check(done, text)
    assert groups(done.module) == [] and len(caplog.records) == 1


def test_a_group_of_the_users_own_is_split(monkeypatch, caplog) -> None:
    text = """
func @main(%x: f32[4,8] {role = input}) -> (f32[4] {name = "y"}) {
  %y = fused(%x) region(%a0: f32[4,8]) {
    %0 = exp(%a0) : f32[4,8]
    %1 = reduce_sum(%0) {axes = [1], keepdims = false} : f32[4]
    %2 = relu(%1) : f32[4]
    yield %2
  } : f32[4]
  return %y
}
"""
    refuse(monkeypatch, reduces, ["schedule", "schedule_plainly"])
    for level in (0, 2):
        done = compiled(text, opt_level=level)
        check(done, text)
        assert [op.name for op in done.module.main.ops] == ["exp", "reduce_sum", "relu"]
    assert len(caplog.records) == 2


def test_an_op_of_which_no_kernel_compiles(monkeypatch, tmp_path: Path) -> None:
    refuse(monkeypatch, lambda func: 'sblock("reduced")' in func.script(), ["schedule", "schedule_plainly"])
    with pytest.raises(CodegenError, match=r"^conv \(%a\): no kernel compiles for it: the schedule is refused; "):
        compiled(opt_level=0, output=tmp_path / "m.memc")
    assert not (tmp_path / "m.memc").exists() and CodegenError("").exit_code == 3


@pytest.mark.parametrize("late", [False, True])
def test_joint_kernels_give_way_to_those_of_their_ops(monkeypatch, caplog, late: bool) -> None:
    text = """
func @main(%x: f32[3,16] {role = input}) -> (f32[3,16] {name = "y"}) {
  %m = reduce_max(%x) {axes = [1], keepdims = true} : f32[3,1]
  %d = sub(%x, %m) : f32[3,16]
  %e = exp(%d) : f32[3,16]
  %s = reduce_sum(%e) {axes = [1], keepdims = true} : f32[3,1]
  %y = div(%e, %s) : f32[3,16]
  return %y
}
"""
    passes = "materialize-returns,decompose,assign-addresses{solver=none},join-rows"
    assert memc.compile(parse(text, "test"), pass_pipeline=passes).report.kernels == 1
    real = table.lower_rows

    def refused(*given: Any) -> Any:
        if late:
            func = real(*given)
            extra = tirx.Evaluate(tirx.call_extern("int32", "abs", tirx.Var("undefined", "int32")))
            return func.with_body(tirx.SeqStmt([extra, func.body]))
        raise RuntimeError("refused")

    monkeypatch.setattr(table, "lower_rows", refused)
    done = memc.compile(parse(text, "test"), pass_pipeline=passes)
    check(done, text)
    assert done.report.kernels == 5 and len(caplog.records) == 1
    assert re.search(r"their joint kernel does not compile \(.*\); using one for each op", caplog.text)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_kernels_that_nvcc_refuses(monkeypatch, caplog) -> None:
    real = cubin.compile_source

    def compile_source(source: str, arch: str, *rest: Any) -> bytes:
        if re.search(r"__global__ .*fused_mul", source):
            raise UnsupportedError("target cuda: nvcc failed: error: a test")
        return real(source, arch, *rest)

    monkeypatch.setattr(cubin, "compile_source", compile_source)
    done = compiled(target="cuda", arch="sm_90")
    assert groups(done.module) == [["exp", "reduce_sum"]]
    assert re.search(r"conv \+ relu \+ mul .*nvcc failed: error: a test; compiling again without", caplog.text)


def test_without_a_compiler_nothing_is_split(monkeypatch, caplog) -> None:
    def compile_source(source: str, arch: str, *_: Any) -> bytes:
        raise UnsupportedError("nvcc was not found")

    monkeypatch.setattr(cubin, "compile_source", compile_source)
    with pytest.raises(UnsupportedError, match="nvcc was not found"):
        compiled(target="cuda", arch="sm_90")
    assert not caplog.records


@pytest.mark.parametrize("broken", [{"k3"}, {"k0", "k6"}, {"k1", "k2", "k5"}, set("k0 k1 k2 k3 k4 k5 k6".split())])
def test_broken_kernels_are_found_by_halves(broken: set[str]) -> None:
    built: list[Sequence[str]] = []

    def compiles(names: Sequence[str]) -> None:
        built.append(names)
        if broken & set(names):
            raise RuntimeError(" ".join(sorted(broken & set(names))))

    found = find_broken([f"k{n}" for n in range(7)], RuntimeError("all"), compiles)
    assert {name: str(error) for name, error in found.items()} == {name: name for name in broken}
    assert all(len(names) < 7 for names in built)

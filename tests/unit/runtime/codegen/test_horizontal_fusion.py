# SPDX-License-Identifier: Apache-2.0
"""Kernels of several ops against the ops one by one, element after element as threads compute them, on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import Schedule

from memc.ir.core import Op, Value
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen import schedule_gpu
from memc.runtime.codegen.horizontal_fusion import joint_key, lower_joint, parameters
from memc.runtime.codegen.kernel_table import KernelTable

Array = npt.NDArray[Any]

CELL = """
func @main(%gates: f32[4,32] {role = input}, %c: f32[4,8] {role = input}) -> (f32[4,8], f32[4,8]) {
  %i = slice(%gates) {starts = [0, 0], stops = [4, 8], steps = [1, 1]} : f32[4,8]
  %f = slice(%gates) {starts = [0, 8], stops = [4, 16], steps = [1, 1]} : f32[4,8]
  %g = slice(%gates) {starts = [0, 16], stops = [4, 24], steps = [1, 1]} : f32[4,8]
  %si = sigmoid(%i) : f32[4,8]
  %sf = sigmoid(%f) plan {in_place = 0} : f32[4,8] alias %f[0]
  %tg = tanh(%g) : f32[4,8]
  %kept = mul(%sf, %c) plan {in_place = 0} : f32[4,8] alias %f[0]
  %new = mul(%si, %tg) : f32[4,8]
  %next = add(%kept, %new) : f32[4,8]
  %h = tanh(%next) : f32[4,8]
  return %next, %h
}
"""


def joint_ops(text: str) -> tuple[Any, list[Op]]:
    module = parse(text, "test")
    PassManager.parse("join-kernels").run(module)
    return module, [op for op in module.main.ops if op.plan.joint == 0]


def run_one_by_one(ops: list[Op], data: dict[Value, Array]) -> None:
    """The kernel of `ops`, all results of an element before the next element, over arrays by root."""
    sch = Schedule(tvm.ir.IRModule({"main": lower_joint(ops, "llvm")}))
    names = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]
    flat = [sch.fuse(*sch.get_loops(sch.get_sblock(name))) for name in names]
    sch.merge(*flat)
    built = tvm.tirx.build(sch.mod, target="llvm")
    tensors = [tvm.runtime.tensor(data[v.root]) for v in parameters(ops)]
    built["main"](*tensors)
    for value, tensor in zip(parameters(ops), tensors):
        if value in {op.result for op in ops}:
            data[value.root] = tensor.numpy()


def test_a_cell_in_one_kernel() -> None:
    module, ops = joint_ops(CELL.replace("in_place = 0", "").replace(" plan {} ", " ").replace(" alias %f[0]", ""))
    assert len(ops) == len(module.main.ops) == 10
    rng = np.random.default_rng(0)
    given = {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in module.main.params}
    data: dict[Value, Array] = {p: given[p.name] for p in module.main.params}
    data.update({op.result: np.full(op.result.type.shape, np.nan, np.float32) for op in ops})
    run_one_by_one(ops, data)
    for value, expected in zip(module.main.returns, evaluate(module, given).values()):
        np.testing.assert_allclose(data[value], expected, rtol=1e-6)


def test_ops_that_overwrite_what_others_made_stay_in_one_kernel() -> None:
    _, ops = joint_ops(CELL)
    assert [op.result.name for op in ops] == ["i", "f", "g", "si", "sf", "tg", "kept", "new", "next", "h"]


def test_one_kernel_serves_runs_that_differ_by_their_operands_alone() -> None:
    step = "  %{0} = exp(%x) : f32[8]\n  %{1} = mul(%{0}, %{2}) : f32[8]\n  %{3} = reduce_sum(%{1}) {{axes = [0], keepdims = true}} : f32[1]\n"
    body = step.format("a", "b", "x", "c") + step.format("d", "e", "x", "f") + step.format("g", "h", "g", "i")
    text = f"func @main(%x: f32[8] {{role = input}}) -> (f32[1], f32[1], f32[1]) {{\n{body}  return %c, %f, %i\n}}\n"
    module = parse(text, "test")
    PassManager.parse("join-kernels").run(module)
    runs = [[op for op in module.main.ops if op.plan.joint == n] for n in range(3)]
    assert joint_key(runs[0]) == joint_key(runs[1]) != joint_key(runs[2])
    table = KernelTable(CodeTarget.create("cuda", "sm_90"))
    assert table.joint(runs[0]) == table.joint(runs[1]) != table.joint(runs[2])


def test_threads_share_out_the_elements() -> None:
    _, ops = joint_ops(CELL)
    scheduled = schedule_gpu.schedule(lower_joint(ops, "cuda"), CodeTarget.create("cuda", "sm_90"))
    text = scheduled["main"].script()
    assert text.count("threadIdx.x") == text.count("blockIdx.x") == 1
    assert "noalias" not in text

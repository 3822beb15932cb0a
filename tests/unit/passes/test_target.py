# SPDX-License-Identifier: Apache-2.0
"""What passes plan for, and checkers check against, is the module's target; options of passes override it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import memc
from memc.ir.errors import CheckError, InvalidError, UsageError
from memc.ir.liveness import arena_bytes, peak
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.text.parser import parse
from memc.ir.verify.memory_plan import check_plan
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.placement import alias_plan
from memc.passes.registry import known_passes

TEXT = """
func @main(%x: f32[4] {role = input}) -> f32[4] {
  %a = exp(%x) : f32[4]
  %b = tanh(%x) : f32[4]
  %y = add(%a, %b) : f32[4]
  return %y
}
"""

SMALL = ", ".join(f"%t{n}" for n in range(8))
MERGE = f"""
func @main(%x: f32[16] {{role = input}}, %y: f32[256] {{role = input}}) -> () {{
  %a = exp(%x) : f32[16]
  "use"(%a) : ()
  {SMALL} = "make"(%x) : {", ".join(["f32[16]"] * 8)}
  "use"({SMALL}) : ()
  %a2 = exp(%x) : f32[16]
  "use"(%a2) : ()
  %b, %c = "make"(%y) : f32[256], f32[256]
  "use"(%b, %c) : ()
  return
}}
"""
"""Where %a2 is merged with %a, nine small values live together: 576 bytes in units of 64, 2304 in units of 256. The two
large ones take 2048."""

CONVOLUTIONS = """
func @main(%x: f32[1,3,9,9] {role = input}, %w: f32[5,3,3,3] {role = input}, %v: f32[5,5,1,1] {role = input}) -> f32[1,5,9,9] {
  %0 = conv(%x, %w) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1} : f32[1,5,9,9]
  %1 = relu(%0) : f32[1,5,9,9]
  %2 = conv(%1, %v) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} : f32[1,5,9,9]
  %3 = add(%2, %1) : f32[1,5,9,9]
  %4 = softmax(%3) {axis = 1} : f32[1,5,9,9]
  %5 = mul(%4, %0) : f32[1,5,9,9]
  return %5
}
"""

CUDA = Target.of("cuda")


def offsets(module: Module) -> dict[str, int]:
    return {v.name: v.placement.offset for v in module.main.values() if v.placement is not None}


def planned(text: str, passes: str, target: Target) -> Module:
    module = parse(text)
    module.target = target
    PassManager.parse(passes).run(module)
    return module


@pytest.mark.parametrize("passes", ["assign-addresses", "assign-addresses{solver=none}", "share,assign-addresses"])
def test_a_given_pipeline_plans_for_the_target(passes: str) -> None:
    done = memc.compile(parse(TEXT), target="cuda", plan_only=True, pass_pipeline=passes)
    assert done.module.target == CUDA
    assert sorted(offsets(done.module).values()) == [0, 256]
    assert done.report.arena_bytes == done.report.lower_bound_bytes == 512


def test_a_plan_that_the_target_cannot_run_is_refused() -> None:
    passes = "assign-addresses{alignment=64}"
    with pytest.raises(InvalidError, match="%b: expected an address that is a multiple of 256, got 64"):
        memc.compile(parse(TEXT), target="cuda", plan_only=True, pass_pipeline=passes)
    done = memc.compile(parse(TEXT), target="cuda", plan_only=True, pass_pipeline=passes, alignment=64)
    assert offsets(done.module) == {"a": 0, "b": 64} and done.report.arena_bytes == 128
    assert offsets(planned(TEXT, passes, CUDA)) == {"a": 0, "b": 64}  # No code is made.


def test_a_plan_is_checked_against_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the pass believes."""
    monkeypatch.setattr("memc.passes.placement.assign_addresses.alignment_of", lambda given, module: 64)
    with pytest.raises(CheckError, match="after pass assign-addresses: .* multiple of 256, got 64"):
        planned(TEXT, "assign-addresses", CUDA)


def test_an_option_overrides_the_target() -> None:
    assert offsets(planned(TEXT, "assign-addresses{alignment=512}", CUDA)) == {"a": 0, "b": 512}
    assert offsets(planned(TEXT, "assign-addresses{alignment=16}", Target())) == {"a": 0, "b": 16}
    given = "func @main(%x: f32[4,4] {role = input}, %w: f32[4,4] {role = weight}) -> f32[4,4] {\n"
    given += "  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[4,4]\n  return %y\n}\n"
    for option, kernel in (("", "memc.cuda.matmul"), ("{target=llvm}", "memc.cpu.matmul"), ("{target=none}", None)):
        module = planned(given, f"select-kernels{option}", CUDA)
        assert module.main.ops[0].plan.library_kernel == kernel
        assert str(PassManager.parse(f"select-kernels{option}")) == f"select-kernels{option}"


def test_canonicalize_judges_by_the_target() -> None:
    for target, left, bytes_ in ((Target(), 1, 2048), (CUDA, 2, 2048)):
        module = planned(MERGE, "canonicalize", target)
        assert [op.name for op in module.main.ops].count("exp") == left
        assert peak(module.main, target.alignment) == bytes_


@pytest.mark.parametrize("level", range(3))
def test_every_peak_is_judged_by_the_target(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    plan = alias_plan._Planner.__init__

    def recorded(self: Any, function: Any, alignment: int, *rest: Any) -> None:
        seen.add(alignment)
        plan(self, function, alignment, *rest)

    monkeypatch.setattr(alias_plan._Planner, "__init__", recorded)
    module = planned(CONVOLUTIONS, pipeline(level, "cuda"), CUDA)
    assert seen <= {256} and (seen or level == 0)
    check_plan(module, 256, arena_bytes(module.main, 256))


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_the_target_stands_for_every_option(level: int, kind: str) -> None:
    target = Target.of(kind)
    module, explicit = parse(CONVOLUTIONS), parse(CONVOLUTIONS)
    module.target = explicit.target = target
    manager = PassManager.parse(pipeline(level, target.kind))
    manager.run(module)
    values = {"alignment": target.alignment, "target": target.kind}
    for number, item in enumerate(manager.passes):
        own = {f.name for f in dataclasses.fields(item) if getattr(item, f.name) is None}
        manager.passes[number] = dataclasses.replace(item, **{k: v for k, v in values.items() if k in own})
    manager.run(explicit)
    assert str(explicit) == str(module)


def test_options_have_one_name_and_no_value_of_their_own() -> None:
    for name, kind in known_passes().items():
        fields = {f.name: f.default for f in dataclasses.fields(kind)}
        assert not {"library", "device"} & fields.keys(), name
        assert all(fields.get(option) is None for option in ("alignment", "target")), name


def test_targets() -> None:
    assert Target.of("cuda") == Target("cuda", "sm_90", 256) and Target.of("llvm") == Target("llvm", "", 64)
    assert Target.of("cuda", "sm_80", 512) == Target("cuda", "sm_80", 512)
    with pytest.raises(UsageError, match="arch 'sm_90': only target cuda"):
        Target("llvm", "sm_90")


def test_alignment_of_the_whole_compilation_rules_a_given_pipeline() -> None:
    done = memc.compile(parse(TEXT), target="cuda", alignment=1024, plan_only=True, pass_pipeline="assign-addresses")
    assert sorted(offsets(done.module).values()) == [0, 1024]
    assert done.report.arena_bytes == done.report.lower_bound_bytes == 2048

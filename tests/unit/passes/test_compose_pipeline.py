# SPDX-License-Identifier: Apache-2.0
"""The head of a compilation's pipeline: verified, timed, printed and named as every other pass, and measured behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import memc
from memc.ir.errors import CheckError, UnsupportedError
from memc.ir.module import Module
from memc.passes.base import Finding, Pass
from memc.passes.compose_pipeline import body_precision, in_precision, training_head, with_head, without
from memc.passes.manager import PassManager
from memc.passes.pipelines import Precision
from memc.passes.precision.mixed_precision import MixedPrecision
from memc.passes.precision.narrow_products import NarrowProducts
from memc.passes.training.build_gradient import BuildGradient
from memc.report.compile_report import Baseline

TEXT = """func @main(%x: f32[4,8] {role = input}, %w: f32[8,3] {role = weight}) -> f32[4,3] {
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[4,3]
  return %y
}
"""


def model() -> Module:
    module = memc.parse(TEXT)
    module.weights["w"] = np.ones((8, 3), np.float32)
    return module


@pytest.mark.parametrize(
    ("precision", "head", "rest"),
    [
        ("f32", "build-gradient", "f32"),
        ("tf32", "build-gradient", "tf32"),
        ("bf16", "build-gradient{half=bf16},narrow-products", "f32"),
        ("f16", "build-gradient{loss-scale=dynamic half=f16},narrow-products", "f32"),
    ],
)
def test_what_a_training_step_begins_with(precision: Precision, head: str, rest: str) -> None:
    train = BuildGradient()
    manager = with_head(PassManager.parse("decompose").passes, train, precision)
    assert str(manager) == f"{head},decompose" and manager.head == head.count(",") + 1
    assert body_precision(train, precision) == rest and body_precision(None, precision) == precision
    assert with_head([], None, precision).passes == []
    assert training_head(BuildGradient(loss_scale=8.0), "f16")[0] == BuildGradient(loss_scale=8.0, half="f16")
    written_out = BuildGradient(attention=False)
    assert training_head(written_out, "bf16") == [MixedPrecision(weights="keep"), written_out, NarrowProducts()]


def test_a_given_pipeline_in_a_precision() -> None:
    given = PassManager.parse("canonicalize,build-gradient,decompose").passes
    for precision, text in (
        ("f32", "canonicalize,build-gradient,decompose"),
        ("tf32", "canonicalize,build-gradient,decompose,set-precision{mode=tf32}"),
        ("bf16", "mixed-precision{weights=keep},canonicalize,build-gradient,narrow-products,decompose"),
    ):
        assert str(PassManager(in_precision(given, precision))) == text  # type: ignore[arg-type]
    assert str(PassManager(in_precision(given[:1], "f16"))) == "mixed-precision{to=f16},canonicalize"
    assert str(PassManager(without(given, ["canonicalize", "decompose"]))) == "build-gradient"
    with pytest.raises(
        memc.MemcError, match="disabled pass `fuse`: expected one of build-gradient, canonicalize, deco"
    ):
        without(given, ["fuse"])


def test_the_head_is_timed_printed_and_stated(capsys: pytest.CaptureFixture[str]) -> None:
    done = memc.compile(model(), train=BuildGradient(loss="mse"), plan_only=True, print_ir_after_all=True)
    assert done.report.pipeline.startswith("build-gradient{loss=mse},materialize-returns,")
    assert done.report.pass_seconds[0][0] == "build-gradient{loss=mse}"
    assert capsys.readouterr().err.startswith("// -----// IR Dump After BuildGradient (build-gradient) //----- //\n")
    given = memc.compile(model(), train=BuildGradient(), pass_pipeline="assign-addresses", plan_only=True)
    assert given.report.pipeline == "build-gradient,assign-addresses"
    assert given.report.training is not None and given.report.training.loss == "softmax-cross-entropy"


def test_what_is_unoptimized_is_the_program_that_the_head_makes() -> None:
    train = BuildGradient(loss="mse")
    at_level_0 = memc.compile(model(), train=train, opt_level=0, plan_only=True, kernels="generated").report
    optimized = memc.compile(model(), train=train, plan_only=True, kernels="generated").report
    assert optimized.unoptimized_bytes == at_level_0.unoptimized_bytes == at_level_0.arena_bytes > optimized.arena_bytes
    inferred = memc.compile(model(), plan_only=True).report
    assert inferred.unoptimized_bytes < optimized.unoptimized_bytes


@pytest.mark.parametrize(("head", "ops"), [(0, 1), (1, 2), (2, 3)])
def test_the_measure_sees_the_program_once_between_head_and_body(head: int, ops: int) -> None:
    seen = []

    def measure(module: Module) -> Finding:
        seen.append(len(module.main.ops))
        return Baseline(0, ())

    manager = PassManager([Longer(), Longer()], head=head, measure=measure)
    for _ in range(2):
        manager.run(
            module := memc.parse(
                "func @main(%x: f32[4] {role = input}) -> f32[4] {\n  %y = exp(%x) : f32[4]\n  return %y\n}"
            )
        )
        assert manager.findings == [Baseline(0, ())] and len(module.main.ops) == 3
    assert seen == [ops, ops]


def test_an_invalid_head_is_named() -> None:
    with pytest.raises(CheckError, match="^after pass break-it: "):
        PassManager([Broken()], head=1).run(model())


def test_a_model_that_cannot_be_trained_is_not_the_fault_of_a_pass() -> None:
    module = memc.parse(
        "func @main(%x: f32[4] {role = input}, %w: f32[4] {role = weight}) -> i64[4] {\n"
        "  %m = mul(%x, %w) : f32[4]\n  %y = cast(%m) {to = i64} : i64[4]\n  return %y\n}\n"
    )
    module.weights["w"] = np.ones(4, np.float32)
    with pytest.raises(UnsupportedError) as caught:
        memc.compile(module, train=BuildGradient(), plan_only=True)
    assert str(caught.value).startswith("expected a result of floats with a batch axis to train on, got i64[4]")
    assert caught.value.exit_code == 3


@dataclass(frozen=True)
class Longer(Pass):
    """Append an op."""

    name: ClassVar[str] = "longer"

    def apply(self, module: Module) -> None:
        from memc.ir.build import IRBuilder

        function = module.main
        function.returns = [IRBuilder(module, function, function.ops).op("neg", [function.returns[0]])]


@dataclass(frozen=True)
class Broken(Pass):
    """Leave an op that reads what is computed later."""

    name: ClassVar[str] = "break-it"

    def apply(self, module: Module) -> None:
        module.main.ops.clear()

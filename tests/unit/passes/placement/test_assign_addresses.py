# SPDX-License-Identifier: Apache-2.0
"""Liveness, sharing, addresses, kernels' workspaces, and the levels."""

import dataclasses

import numpy as np
import pytest

from memc.ir.core import Value
from memc.ir.errors import UsageError
from memc.ir.evaluate import evaluate_in_arena
from memc.ir.liveness import (
    Lifetime,
    arena_bytes,
    lifetimes,
    live_bytes,
    lower_bound,
    peak,
    space_of,
    unoptimized_bytes,
)
from memc.ir.ops.shared import op_def
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.placement.share import color

TEXT = """
func @main(%x: f32[4,16] {role = input}, %w: f32[16,16] {role = weight}) -> f32[4,16] {
  %k = constant() {value = dense<f32[1]>[2.0]} : f32[1]
  %a = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[4,16]
  %b = relu(%a) : f32[4,16]
  %s = reduce_sum(%b) {axes = [0, 1], keepdims = true} : f32[1,1]
  %unused = exp(%x) : f32[4,16]
  %y = add(%b, %s) : f32[4,16]
  return %y
}
"""


def live(*rows: tuple[int, int, int]) -> list[Lifetime]:
    """Lifetimes from (lower, upper, bytes)."""
    return [
        Lifetime(Value(str(i), TensorType(DType.U8, (n,))), lower, upper, n) for i, (lower, upper, n) in enumerate(rows)
    ]


def test_lifetimes_and_spaces():
    function = parse(TEXT).main
    spaces = {v.name: space_of(function, v) for v in function.values()}
    assert spaces == {
        **dict.fromkeys("abs", "arena"),
        "x": "io",
        "w": "weights",
        "k": "weights",
        "unused": "arena",
        "y": "io",
    }
    found = {life.root.name: (life.lower, life.upper, life.nbytes) for life in lifetimes(function)}
    assert found == {"a": (1, 3, 256), "b": (2, 6, 256), "s": (3, 6, 4), "unused": (4, 5, 256)}
    assert live_bytes(lifetimes(function), 6) == [0, 256, 512, 320, 576, 320]
    assert peak(function) == 576
    assert unoptimized_bytes(function) == 3 * 256 + 64


def test_an_alias_lives_with_its_root():
    module = parse(TEXT)
    PassManager.parse("in-place").run(module)
    found = {life.root.name: (life.lower, life.upper) for life in lifetimes(module.main)}
    # b lies in a and y in b: all three are the output's bytes.
    assert found == {"s": (3, 6), "unused": (4, 5)}
    assert unoptimized_bytes(module.main) == 3 * 256 + 64


def test_sizes_are_rounded_up():
    rows = live((0, 2, 1000), (3, 6, 400), (3, 6, 500), (2, 3, 0))
    assert lower_bound(rows, 1) == 1000
    assert lower_bound(rows, 64) == 1024
    assert lower_bound([], 64) == 0


def test_color_recycles_and_grows():
    rows = live((0, 2, 64), (1, 3, 128), (2, 4, 128), (3, 5, 640), (4, 6, 64))
    # 2 takes 0's buffer and enlarges it; 3 takes 1's; 4 takes 0's again.
    assert color(rows) == [0, 1, 0, 1, 0]
    assert color(rows, "equal-size") == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("strategy", ["color", "equal-size"])
@pytest.mark.parametrize("seed", range(10))
def test_color_never_gives_a_buffer_to_two_live_storages(random_module, seed, strategy):
    module, _ = random_module(seed, 40)
    PassManager.parse("materialize-returns,decompose,in-place").run(module)
    lives = lifetimes(module.main)
    numbers = color(lives, strategy)
    for i, a in enumerate(lives):
        for b, number in zip(lives[:i], numbers):
            assert numbers[i] != number or a.upper <= b.lower or b.upper <= a.lower
            if numbers[i] == number and strategy == "equal-size":
                assert -(-a.nbytes // 64) == -(-b.nbytes // 64)


def test_buffers_are_laid_out_one_after_another_or_solved_as_blocks():
    sequential, blocks = parse(TEXT), parse(TEXT)
    PassManager.parse("share,assign-addresses{solver=sequential}").run(sequential)
    PassManager.parse("share,assign-addresses{solver=best-fit}").run(blocks)
    offsets = {v.name: v.placement.offset for v in sequential.main.values() if v.placement}
    # s takes over a's buffer (256 bytes); the unused result needs a third.
    assert offsets == {"a": 0, "b": 256, "s": 0, "unused": 512}
    assert arena_bytes(sequential.main) == arena_bytes(blocks.main) == 768
    starts = {v.name: v.placement.offset for v in blocks.main.values() if v.placement}
    assert starts["a"] == starts["s"]


@pytest.mark.parametrize("solver", ["none", "sequential", "auto", "best-fit", "first-fit"])
@pytest.mark.parametrize("alignment", [64, 256])
def test_every_solver(solver, alignment):
    module = parse(TEXT)
    PassManager.parse(f"assign-addresses{{solver={solver} alignment={alignment}}}").run(module)
    offsets = [v.placement.offset for v in module.main.values() if v.placement]
    assert len(offsets) == 4 and all(offset % alignment == 0 for offset in offsets)
    size = arena_bytes(module.main, alignment)
    assert size >= peak(module.main, alignment)
    assert solver not in ("none", "sequential") or size == unoptimized_bytes(module.main, alignment)


def test_bad_alignment():
    with pytest.raises(UsageError, match="expected a power of two of bytes, got '48'"):
        PassManager.parse("assign-addresses{alignment=48}")


@pytest.fixture
def kernel(monkeypatch):
    """A library kernel for matmul alone, with the workspace (least, most) that `set` holds."""
    sizes = {"least": 100, "most": 10_000}
    found = LibraryKernel(
        "llvm",
        "test.matmul",
        lambda op: op.name == "matmul",
        lambda op: (),
        lambda op: (sizes["least"], sizes["most"]),
    )
    monkeypatch.setitem(op_def._REGISTRY, "matmul", dataclasses.replace(op_def._REGISTRY["matmul"], library=(found,)))
    return sizes


def test_workspace_uses_what_is_free_under_the_peak(kernel):
    module = parse(TEXT)
    before = peak(module.main)
    PassManager.parse("select-kernels,assign-addresses").run(module)
    op = module.main.ops[1]
    assert op.plan.library_kernel == "test.matmul"
    # With a and b in the output, 320 bytes are the peak and nothing is live at the product.
    assert op.workspace.type == TensorType(DType.U8, (320,))
    assert op.workspace.placement is not None
    assert peak(module.main) <= before


def test_workspace_is_no_larger_than_useful(kernel):
    kernel["most"] = 128
    module = parse(TEXT)
    PassManager.parse("select-kernels").run(module)
    assert module.main.ops[1].workspace.type.nbytes == 128


@pytest.mark.parametrize("least", [0, 100])
def test_a_second_run_enlarges_workspaces(kernel, least):
    kernel["least"] = least
    once, twice = parse(TEXT), parse(TEXT)
    PassManager.parse("select-kernels").run(once)
    PassManager.parse("select-kernels{workspace=least},select-kernels").run(twice)
    assert str(once) == str(twice) and once.main.ops[1].workspace.type.nbytes == 320


def test_least_workspace(kernel):
    module = parse(TEXT)
    PassManager.parse("select-kernels{workspace=least}").run(module)
    assert module.main.ops[1].workspace.type.nbytes == 100


@pytest.mark.parametrize(("slow", "chosen"), [(1_000_000, False), (10, True)])
def test_workspace_that_raises_the_peak(kernel, slow, chosen):
    kernel["least"] = 1000
    module = parse(TEXT)
    PassManager.parse(f"select-kernels{{slow-flops={slow}}}").run(module)
    op = module.main.ops[1]
    assert (op.plan.library_kernel is not None) == chosen == (op.workspace is not None)
    assert op.workspace is None or op.workspace.type.nbytes == 1000


def test_no_library_for_another_target(kernel):
    module = parse(TEXT)
    PassManager.parse("select-kernels{target=none}").run(module)
    assert module.main.ops[1].plan.library_kernel is None


def test_library_kernels_whatever_their_memory(kernel):
    kernel["least"] = 1000
    for kernels, chosen in (("auto", False), ("library", True)):
        module = parse(TEXT)
        text = next(p for p in pipeline(2, kernels=kernels).split(",") if "workspace=least" in p)
        PassManager.parse(text).run(module)
        assert (module.main.ops[1].plan.library_kernel is not None) == chosen


def test_levels():
    assert pipeline(3).replace(" time-limit=10s", "") == pipeline(2).replace("slack=0.001 work=200000000 ", "")
    assert "select-kernels{target=none}" in pipeline(2, kernels="generated")
    assert not any(word in pipeline(2, target) for target in ("llvm", "cuda") for word in ("alignment", "target"))
    for level in range(4):
        passes = PassManager.parse(pipeline(level, "cuda")).passes
        assert passes[0].name == "materialize-returns" and passes[-1].name in ("assign-addresses", "join-kernels")
        assert all(dataclasses.is_dataclass(p) for p in passes)
    with pytest.raises(UsageError, match="expected 0, 1, 2 or 3, got 4"):
        pipeline(4)


@pytest.mark.parametrize("level", range(4))
def test_levels_take_ops_of_several_results(level):
    module = parse(
        """
func @main(%x: f32[4,8] {role = input}) -> (f32[4,2] {name = "v"}, i64[4,2] {name = "i"}) {
  %n = neg(%x) : f32[4,8]
  %v, %i = top_k(%n) {axis = 1, k = 2, largest = true} : f32[4,2], i64[4,2]
  return %v, %i
}
"""
    )
    PassManager.parse(pipeline(level)).run(module)
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    found = evaluate_in_arena(module, {"x": x})
    np.testing.assert_array_equal(found["v"], -np.sort(x)[:, :2])
    np.testing.assert_array_equal(found["i"], np.argsort(x)[:, :2])


def test_decompose_keeps_names_and_expands_all():
    text = """func @main(%x: f32[4,16] {role = input}) -> f32[4,16] {
      %a = softmax(%x) {axis = 1} : f32[4,16] loc("node")
      %y = layer_norm(%a) {axis = 1, epsilon = 0.001} : f32[4,16]
      return %y
    }"""
    module = parse(text)
    PassManager.parse("decompose").run(module)
    assert module.main.returns[0].name == "y"
    assert {"softmax", "layer_norm", "reduce_mean"}.isdisjoint(op.name for op in module.main.ops)
    made = next(op for op in module.main.ops if any(v.name == "a" for v in op.results))
    assert made.location == "node"


def test_a_space_that_the_target_lacks_is_the_texts_mistake() -> None:
    text = """
func @main(%x: f32[8] {role = input}) -> f32[8] {
  %a = exp(%x) : f32[8] @elsewhere[0]
  %b = neg(%a) : f32[8]
  return %b
}
"""
    with pytest.raises(
        UsageError, match=r"^assign-addresses: @main, %a: expected a space of the target \(arena\), got @else"
    ):
        PassManager.parse("assign-addresses").run(parse(text))

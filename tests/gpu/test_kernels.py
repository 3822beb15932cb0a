# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: kernels that exist for CUDA alone, against numpy. Skips itself elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import memc
from memc.ir.evaluate import evaluate
from memc.ir.text.parser import parse

pytestmark = pytest.mark.gpu

Array = npt.NDArray[Any]

PRODUCT = """
func @main(%x: f32[1024,1024] {role = input}, %w: f32[1024,1024] {role = input}) -> f32[1024,1024] {
  %y = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[1024,1024]
  return %y
}
"""

CELL = """
func @main(%gates: f32[32,64] {role = input}, %c: f32[32,16] {role = input}) -> (f32[32,16], f32[32,16]) {
  %i = slice(%gates) {starts = [0, 0], stops = [32, 16], steps = [1, 1]} : f32[32,16]
  %f = slice(%gates) {starts = [0, 16], stops = [32, 32], steps = [1, 1]} : f32[32,16]
  %si = sigmoid(%i) : f32[32,16]
  %sf = sigmoid(%f) : f32[32,16]
  %kept = mul(%sf, %c) : f32[32,16]
  %next = add(%kept, %si) : f32[32,16]
  %h = tanh(%next) : f32[32,16]
  return %next, %h
}
"""

PERCEPTRON = """
func @main(%x: f32[16,33] {role = input}, %w: f32[33,700] {role = weight}, %b: f32[700] {role = weight}, %v: f32[700,5] {role = weight}, %s: f32[] {role = weight}) -> f32[16,5] {
  %0 = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[16,700]
  %1 = add(%0, %b) : f32[16,700]
  %2 = tanh(%1) : f32[16,700]
  %3 = matmul(%2, %v) {transpose_a = false, transpose_b = false} : f32[16,5]
  %4 = mul(%3, %s) : f32[16,5]
  return %4
}
"""

EMBEDDING = """
func @main(%i: i64[8,64] {role = input}, %g: f32[8,64,64] {role = input}, %x: f32[65536] {role = input}) -> (f32[1], f32[500,64]) {
  %t = tanh(%x) : f32[65536]
  %s = reduce_sum(%t) {axes = [0], keepdims = true} : f32[1]
  %y = gather_grad(%i, %g) {axis = 0, extent = 500} : f32[500,64]
  return %s, %y
}
"""


def relative_error(text: str, arch: str, tmp_path: Path, **options: Any) -> float:
    """The largest of a module's outputs on the GPU."""
    rng = np.random.default_rng(0)
    module = parse(text, "test")
    inputs: dict[str, Array] = {}
    for p in module.main.params:
        integer = p.type.dtype.value.startswith("i")
        inputs[p.name] = rng.integers(0, 40, p.type.shape) if integer else rng.normal(size=p.type.shape).astype("f")
    expected = list(evaluate(module, inputs).values())
    done = memc.compile(module, tmp_path / "m.memc", target="cuda", arch=arch, **options)
    found = list(done.load().run_numpy(inputs).values())
    return float(max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, expected)))


def test_tf32_is_less_exact_than_f32(arch: str, tmp_path: Path) -> None:
    """Of a product that tensor cores do faster: where they do not, TF32 is not taken though it may be."""
    assert relative_error(PRODUCT, arch, tmp_path) < 1e-5
    assert 1e-5 < relative_error(PRODUCT, arch, tmp_path, precision="tf32") < 3e-3


CONVOLUTION = """
func @main(%x: f32[2,16,14,14] {role = input}, %w: f32[24,16,3,3] {role = input}, %b: f32[24] {role = input}) -> f32[2,24,14,14] {
  %c = conv(%x, %w, %b) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], group = 1} : f32[2,24,14,14]
  %y = relu(%c) : f32[2,24,14,14]
  return %y
}
"""


@pytest.mark.parametrize("kernels", ["auto", "generated"])
@pytest.mark.parametrize(("precision", "most"), [("f16", 2e-3), ("bf16", 1.5e-2)])
@pytest.mark.parametrize("text", [PRODUCT, CONVOLUTION])
def test_half_precision(arch: str, tmp_path: Path, text: str, precision: str, most: float, kernels: str) -> None:
    assert most / 20 < relative_error(text, arch, tmp_path, precision=precision, kernels=kernels) < most


def test_a_joint_kernel(arch: str, tmp_path: Path) -> None:
    assert relative_error(CELL, arch, tmp_path) < 1e-6


NORMALIZED = """
func @main(%x: T[R,C] {role = input}, %y: T[R,C] {role = input}, %g: T[C] {role = input}, %b: T[C] {role = input}) -> (T[R,C], T[R,C]) {
  %e = mul(%x, %y) : T[R,C]
  %s = softmax(%e) {axis = 1} : T[R,C]
  %z = layer_norm(%x, %g, %b) {axis = 1, epsilon = 0.00001} : T[R,C]
  return %s, %z
}
"""


@pytest.mark.parametrize(("dtype", "most"), [("f32", 1e-6), ("f64", 1e-14), ("f16", 1e-3), ("bf16", 1e-2)])
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 16), (1537, 197), (6, 256), (33, 257), (130, 768), (5, 8192), (3, 30001), (40000, 64)]
)
def test_softmax_and_layer_norm_in_one_kernel(
    arch: str, tmp_path: Path, dtype: str, most: float, rows: int, columns: int
) -> None:
    text = NORMALIZED.replace("T[", f"{dtype}[").replace("[R,C]", f"[{rows},{columns}]").replace("[C]", f"[{columns}]")
    module = parse(text, "test")
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.normal(size=p.type.shape).astype(p.type.dtype.numpy) for p in module.main.params}
    done = memc.compile(module, tmp_path / "m.memc", target="cuda", arch=arch)
    assert any(op.plan.rows is not None for op in done.module.main.ops)
    found = done.load().run_numpy(inputs).values()
    for a, b in zip(found, evaluate(module, inputs).values()):
        wide, exact = a.astype(np.float64), b.astype(np.float64)
        assert np.linalg.norm(wide - exact) / np.linalg.norm(exact) < most


EXTREMES = """
func @main(%x: f32[300,700] {role = input}) -> (f32[300,1], f32[300,700], f32[300,1], f32[300,700]) {
  %a = reduce_max(%x) {axes = [1], keepdims = true} : f32[300,1]
  %b = div(%x, %a) : f32[300,700]
  %c = reduce_min(%b) {axes = [1], keepdims = true} : f32[300,1]
  %d = sub(%b, %c) : f32[300,700]
  return %a, %b, %c, %d
}
"""


def test_extremes_of_rows_have_the_bits_of_numpy(arch: str, tmp_path: Path) -> None:
    module = parse(EXTREMES, "test")
    x = np.random.default_rng(0).normal(size=(300, 700)).astype(np.float32)
    x[7, 333], x[8, 699], x[9] = np.nan, np.inf, -np.inf
    done = memc.compile(module, tmp_path / "m.memc", target="cuda", arch=arch)
    assert any(op.plan.rows is not None for op in done.module.main.ops)
    found = done.load().run_numpy({"x": x}).values()
    for a, b in zip(found, evaluate(module, {"x": x}).values()):
        np.testing.assert_array_equal(a, b)


def test_an_embedding_of_which_most_rows_are_in_no_batch(arch: str, tmp_path: Path) -> None:
    assert relative_error(EMBEDDING, arch, tmp_path) < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "adam"},
        {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5},
    ],
)
def test_updates_in_one_kernel_have_the_bits_of_updates_one_by_one(
    arch: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    def states_after(name: str, disabled: Sequence[str]) -> tuple[dict[str, bytes], int]:
        module = parse(PERCEPTRON, "test")
        rng = np.random.default_rng(0)
        weights = module.main.params[1:]
        module.weights = {p.name: rng.normal(size=p.type.shape).astype(np.float32) for p in weights}
        done = memc.compile(
            module,
            tmp_path / name,
            target="cuda",
            arch=arch,
            kernels="generated",
            train=memc.BuildGradient(**options),
            disabled_passes=disabled,
        )
        step = done.load()
        for _ in range(3):
            step(rng.normal(size=(16, 33)).astype(np.float32), rng.integers(0, 5, 16))
        calls = len(
            {op if op.plan.joint is None else op.plan.joint for op in done.module.main.ops if op.name != "constant"}
        )
        return {key: value.tobytes() for key, value in step.state().items()}, calls

    alone, many = states_after("alone.memc", ("delay-updates", "join-updates", "join-kernels"))
    together, few = states_after("together.memc", ())
    assert together == alone
    assert few < many

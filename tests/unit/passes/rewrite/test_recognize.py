# SPDX-License-Identifier: Apache-2.0
"""Formulas that become one op: the same values, whatever the sequence of factors, and fewer values kept for gradients."""

import itertools

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value, fresh_names
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.training.build_gradient import BuildGradient, build_gradient
from memc.passes.training.losses import Loss
from memc.passes.training.optimizers import Optimizer


def gelu(sequence: tuple[int, ...], dtype: DType = DType.F32) -> Module:
    """x, 0.5 and 1 + erf(x / sqrt(2)), multiplied in this sequence."""
    x = Value("x", TensorType(dtype, (64,)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops, fresh_names(["x"]))
    bent = b.op("erf", [b.op("div", [x, b.scalar(2**0.5, dtype)])])
    factors = [x, b.scalar(0.5, dtype), b.op("add", [bent, b.scalar(1.0, dtype)])]
    first, second, third = (factors[i] for i in sequence)
    function.returns = [b.op("mul", [b.op("mul", [first, second]), third])]
    return module


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.F64])
@pytest.mark.parametrize("sequence", list(itertools.permutations(range(3))))
def test_gelu_in_any_sequence(sequence: tuple[int, ...], dtype: DType) -> None:
    x = {"x": np.linspace(-4, 4, 64).astype(dtype.numpy)}
    (expected,) = evaluate(gelu(sequence, dtype), x).values()
    module = gelu(sequence, dtype)
    PassManager.parse("recognize").run(module)
    assert [op.name for op in module.main.ops] == ["gelu"]
    (found,) = evaluate(module, x).values()
    tolerance = 4e-3 if dtype is DType.F16 else 2e-6  # Each step of the formula is rounded.
    np.testing.assert_allclose(found, expected, atol=tolerance)


def test_a_formula_that_grows_by_broadcasting_stays() -> None:
    module = parse(
        "func @main(%x: f32[1,4] {role = input}, %y: f32[4,1] {role = input}) -> f32[4,4] {\n"
        "%a = sigmoid(%x) : f32[1,4]\n%b = mul(%y, %a) : f32[4,4]\nreturn %b\n}"
    )
    PassManager.parse("recognize").run(module)
    assert [op.name for op in module.main.ops] == ["sigmoid", "mul"]


def test_long_products_are_left_alone() -> None:
    """Each square doubles the factors, but nobody looks that deep."""
    lines = [f"%v{n + 1} = mul(%v{n}, %v{n}) : f32[4]" for n in range(64)]
    module = parse("func @main(%v0: f32[4] {role = input}) -> f32[4] {\n" + "\n".join(lines) + "\nreturn %v64\n}")
    PassManager.parse("recognize").run(module)
    assert len(module.main.ops) == 64


def test_a_training_step_keeps_no_transposed_weight() -> None:
    module = parse(
        "func @main(%x: f32[2,8] {role = input}, %w: f32[4,8] {role = weight}) -> f32[2,4] {\n"
        "%t = transpose(%w) {perm = [1, 0]} : f32[8,4]\n%y = matmul(%x, %t) : f32[2,4]\nreturn %y\n}"
    )
    module.weights["w"] = np.ones((4, 8), np.float32)
    BuildGradient().apply(module)
    assert "transpose" not in [op.name for op in module.main.ops]


def test_gradients_are_those_of_the_pool_behind_relu() -> None:
    """Windows with positive elements, with none, and with ties at zero."""
    text = (
        "func @main(%x: f32[2,1,8,8] {role = input}, %w: f32[1,1,8,8] {role = weight}) -> f32[2,1,4,4] {\n"
        "%s = mul(%x, %w) : f32[2,1,8,8]\n%r = relu(%s) : f32[2,1,8,8]\n"
        "%y = max_pool(%r) {dilations = [1, 1], kernel = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]} : f32[2,1,4,4]\n"
        "return %y\n}"
    )
    random = np.random.default_rng(0)
    inputs = {"x": random.integers(-4, 3, (2, 1, 8, 8)).astype(np.float32)}
    inputs["labels"] = random.normal(size=(2, 1, 4, 4)).astype(np.float32)
    found = []
    for passes in ("", "recognize"):
        module = parse(text)
        module.weights["w"] = np.ones((1, 1, 8, 8), np.float32)
        PassManager.parse(passes).run(module)
        build_gradient(module, Loss("mse"), Optimizer("none"))
        found.append(evaluate(module, inputs)["w.grad"])
        pool = next(op for op in module.main.ops if op.name == "max_pool")
    assert [op.name for op in module.main.uses()[pool.result]] == ["relu"]
    assert [op.name for op in module.main.uses()[pool.operands[0]]] == ["max_pool", "max_pool_taps"]
    np.testing.assert_array_equal(*found)
    assert np.count_nonzero(found[0]) > 5

# SPDX-License-Identifier: Apache-2.0
"""mixed-precision: what becomes half, what stays f32, and how far results move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.ir.verify.memory_plan import check_plan
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.precision.mixed_precision import HalfName
from memc.passes.precision.precision_rules import fits

TOLERANCE = {"f16": 5e-3, "bf16": 4e-2}
"""Of a result as a whole, relative."""

PLAIN = {"transpose_a": False, "transpose_b": False}
WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}


def difference(found: Array, expected: Array) -> float:
    a, b = (v.astype(np.float64) for v in (found, expected))
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-6))


def start(*shape: int, dtype: DType = DType.F32) -> tuple[Module, IRBuilder, Value]:
    x = Value("x", TensorType(dtype, shape), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    return module, IRBuilder(module, function, function.ops), x


def draw(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng([3, *shape]).normal(size=shape).astype(np.float32) * 0.3


def convolutions() -> Module:
    """Convolutions with and without biases, a residual, normalization, pools and a classifier."""
    module, b, x = start(2, 4, 12, 12)
    h = b.op("relu", [b.op("conv", [x, b.constant(draw(8, 4, 3, 3)), b.constant(draw(8))], **WINDOW)])
    inner = b.op("conv", [h, b.constant(draw(8, 8, 3, 3))], **WINDOW)
    parameters = [b.constant(np.abs(draw(8)) + 0.5) for _ in range(4)]
    inner = b.op("batch_norm", [inner, *parameters], epsilon=1e-5, momentum=0.9)
    h = b.op("relu", [b.op("add", [inner, h])])
    h = b.op("max_pool", [h], kernel=(2, 2), strides=(2, 2), pads=(0,) * 4, dilations=(1, 1))
    up = {"strides": (2, 2), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "output_padding": (0, 0)}
    h = b.op("silu", [b.op("conv_transpose", [h, b.constant(draw(8, 4, 2, 2)), b.constant(draw(4))], **up)])
    h = b.op("reduce_mean", [h], axes=(2, 3), keepdims=False)
    h = b.op("add", [b.op("matmul", [h, b.constant(draw(4, 20))], **PLAIN), b.constant(draw(20))])
    module.main.returns = [b.op("softmax", [h], axis=1), b.op("exp", [h])]
    return module


def attention() -> Module:
    """Embeddings, attention with a mask of integers, layer normalization, gelu."""
    module, b, x = start(2, 8, dtype=DType.I64)
    h = b.op("gather", [b.constant(draw(30, 16)), x], axis=0)
    h = b.op("layer_norm", [h, b.constant(draw(16) + 1), b.constant(draw(16))], axis=2, epsilon=1e-12)
    q, k, v = (b.op("matmul", [h, b.constant(draw(16, 16) + i)], **PLAIN) for i in range(3))
    scores = b.op("matmul", [q, k], transpose_a=False, transpose_b=True)
    scores = b.op("div", [scores, b.scalar(4.0, DType.F32)])
    seen = b.op("cast", [b.op("less", [x, b.scalar(20, DType.I64)])], to=DType.F32)
    hidden = b.op("mul", [b.op("sub", [b.scalar(1.0, DType.F32), seen]), b.scalar(-1e4, DType.F32)])
    scores = b.op("add", [scores, b.op("reshape", [hidden], shape=(2, 1, 8))])
    h = b.op("add", [h, b.op("matmul", [b.op("softmax", [scores], axis=2), v], **PLAIN)])
    h = b.op("gelu", [b.op("matmul", [h, b.constant(draw(16, 32))], **PLAIN)], approximate="none")
    module.main.returns = [h]
    return module


MODELS: dict[str, tuple[Callable[[], Module], Array]] = {
    "convolutions": (convolutions, draw(2, 4, 12, 12)),
    "attention": (attention, np.random.default_rng(1).integers(0, 30, (2, 8))),
}


@pytest.mark.parametrize("to", ["f16", "bf16"])
@pytest.mark.parametrize("target", ["llvm", "cuda"])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_results_move_as_far_as_the_type_says(
    name: str, level: int, target: Literal["llvm", "cuda"], to: HalfName
) -> None:
    """In a poisoned arena."""
    build, x = MODELS[name]
    expected = list(evaluate(build(), {"x": x}).values())
    module = build()
    assert target in ("llvm", "cuda") and to in ("f16", "bf16")
    module.target = Target.of(target)
    PassManager.parse(pipeline(level, target, precision=to)).run(module)
    check_plan(module, module.target.alignment)
    found = list(evaluate_in_arena(module, {"x": x}).values())
    for got, wanted in zip(found, expected):
        assert got.dtype == wanted.dtype
        assert 1e-6 < difference(got, wanted) < TOLERANCE[to]


@pytest.mark.parametrize("name", MODELS)
def test_nothing_large_stays_f32(name: str) -> None:
    module = MODELS[name][0]()
    module.target = Target.of("cuda")
    PassManager.parse(pipeline(2, "cuda", precision="bf16")).run(module)
    rows = 8 * 16 * 2
    for op in module.main.ops:
        for value in op.results:
            assert value.type.dtype is not DType.F32 or value.type.elements < rows or value in module.main.returns
    weights = [p.type for p in module.main.params if p.role is Role.WEIGHT and p.type.elements >= 64]
    assert weights and all(type.dtype is DType.BF16 for type in weights)


@pytest.mark.parametrize("to", ["f16", "bf16"])
@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(random_module, seed: int, to: HalfName) -> None:
    """A planned module is as its roundings say, whatever is fused, shared and ordered."""
    plain, inputs = random_module(seed)
    PassManager.parse(f"materialize-returns,canonicalize,mixed-precision{{to={to}}}").run(plain)
    with np.errstate(all="ignore"):
        expected = evaluate(plain, inputs)
        module, _ = random_module(seed)
        PassManager.parse(pipeline(2, precision=to)).run(module)
        check_plan(module, 64)
        found = evaluate_in_arena(module, inputs)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        scale = max(1.0, float(np.abs(value).max(initial=0)))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=4 * TOLERANCE[to] * scale)


def types_of(module: Module, name: str) -> list[str]:
    return [op.result.type.dtype.value for op in module.main.ops if op.name == name]


def mixed(module: Module, to: str = "bf16") -> Module:
    PassManager.parse(f"mixed-precision{{to={to}}}").run(module)
    return module


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_a_mask_out_of_range_keeps_rows_that_it_hides_finite(to: str) -> None:
    """-3.4e38 would become -inf, and a row of those nan."""
    module, b, x = start(4, 8)
    scores = b.op("matmul", [x, b.constant(draw(8, 6))], **PLAIN)
    lowest = b.scalar(float(np.finfo(np.float32).min), DType.F32)
    hidden = b.op("mul", [b.constant(np.ones((4, 1), np.float32)), lowest])
    module.main.returns = [b.op("softmax", [b.op("add", [scores, hidden])], axis=1)]
    assert types_of(mixed(module, to), "add") == ["f32"] and types_of(module, "softmax") == ["f32"]
    (found,) = evaluate(module, {"x": draw(4, 8)}).values()
    np.testing.assert_allclose(found, 1 / 6, rtol=1e-6)


def test_what_has_a_range_of_its_own_stays_f32() -> None:
    module, b, x = start(4, 8)
    y = b.op("matmul", [x, b.constant(draw(8, 8))], **PLAIN)
    b.op("exp", [y])
    total = b.op("reduce_sum", [b.op("mul", [y, y])], axes=(1,), keepdims=True)
    root = b.op("rsqrt", [b.op("add", [total, b.scalar(1e-12, DType.F32)])])
    normal = b.op("mul", [y, root])
    module.main.returns = [b.op("matmul", [normal, b.constant(draw(8, 3))], **PLAIN)]
    mixed(module, "f16")
    assert types_of(module, "mul") == ["f32", "f32"] and types_of(module, "reduce_sum") == ["f32"]
    rounded = [op for op in module.main.ops if op.name == "cast" and op.operands[0].op is normal.op]
    assert [op.result.type.dtype for op in rounded] == [DType.F16]  # Statistics are smaller than what they scale.


def test_an_input_that_is_added_is_not_rounded() -> None:
    module, b, x = start(4, 8)
    y = b.op("matmul", [x, b.constant(draw(8, 8))], **PLAIN)
    module.main.returns = [b.op("add", [y, x])]
    assert types_of(mixed(module), "add") == ["f32"]


def test_a_constant_that_was_moved_is_rounded_as_it_would_be_itself() -> None:
    """But not what was computed of it, which has been rounded nowhere."""
    for op, attrs, added in (("transpose", {"perm": (1, 0)}, "bf16"), ("abs", {}, "f32")):
        module, b, x = start(8, 8)
        y = b.op("matmul", [x, b.constant(draw(8, 8))], **PLAIN)
        module.main.returns = [b.op("add", [y, b.op(op, [b.constant(draw(8, 8))], **attrs)])]
        assert types_of(mixed(module), "add") == [added]


def test_a_weight_that_is_read_in_both_types_is_stored_in_both() -> None:
    module, b, x = start(4, 8)
    w = b.constant(draw(8, 8), "w")
    module.main.returns = [b.op("matmul", [x, w], **PLAIN), b.op("exp", [w])]
    mixed(module)
    assert {p.name: p.type.dtype.value for p in module.main.params} == {"x": "f32", "w": "f32", "w.bf16": "bf16"}
    assert set(module.weights) == {"w", "w.bf16"}


def test_weights_of_a_training_step_are_rounded_at_each_run() -> None:
    module, b, x = start(4, 8)
    w = b.constant(draw(8, 8), "w")
    h = b.op("matmul", [b.op("relu", [b.op("matmul", [x, w], **PLAIN)]), w], **PLAIN)
    module.main.returns = [h]
    PassManager.parse("mixed-precision{weights=keep}").run(module)
    (cast,) = [op for op in module.main.ops if op.operands[0] is w]
    assert cast.name == "cast" and cast.result.type.dtype is DType.BF16 and set(module.weights) == {"w"}


@pytest.mark.parametrize("dtype", [DType.F64, DType.F16, DType.I64])
def test_other_types_are_left_alone(dtype: DType) -> None:
    module, b, x = start(4, 8, dtype=dtype)
    module.main.returns = [b.op("matmul", [x, b.constant(np.ones((8, 3), dtype.numpy))], **PLAIN)]
    before = str(module)
    assert str(mixed(module)) == before


def test_constants_that_halves_have() -> None:
    assert fits(np.float32([65504]), DType.F16) and not fits(np.float32([65520]), DType.F16)
    assert fits(np.float32([3.3e38, np.inf]), DType.BF16) and not fits(np.float32([-3.4028235e38]), DType.BF16)
    assert not fits(np.float32([1e-6]), DType.F16) and fits(np.float32([1e-6, 1]), DType.F16)
    assert fits(np.float32([0]), DType.F16) and fits(np.float32([]), DType.F16)
    for dtype, smallest in ((DType.F16, 2.0**-14), (DType.BF16, 2.0**-126)):
        assert fits(np.float64([smallest]), dtype) and not fits(np.float64([0.99 * smallest]), dtype)


@pytest.mark.parametrize("to", ["f16", "bf16"])
@pytest.mark.parametrize("reduce", ["reduce_max", "reduce_min"])
def test_extrema_of_what_a_product_gives(to: HalfName, reduce: str) -> None:
    module, b, x = start(5, 8)
    product = b.op("matmul", [x, b.constant(draw(8, 6))], **PLAIN)
    extremum = b.op(reduce, [product], axes=(1,), keepdims=True)
    module.main.returns = [b.op("matmul", [b.op("sub", [product, extremum]), b.constant(draw(6, 3))], **PLAIN)]
    inputs = {"x": draw(5, 8)}
    (expected,) = evaluate(module, inputs).values()
    PassManager.parse(f"materialize-returns,mixed-precision{{to={to}}}").run(module)
    names = [op.name for op in module.main.ops if op.name != "constant"]
    (found,) = evaluate(module, inputs).values()
    assert difference(found, expected) < TOLERANCE[to]
    last = next(op for op in module.main.ops if op.name == "sub")
    assert [v.type.dtype.value for v in last.operands] == [to, to], names

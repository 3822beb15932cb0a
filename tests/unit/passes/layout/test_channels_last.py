# SPDX-License-Identifier: Apache-2.0
"""channels-last: what is rewritten for whom, that results and weights stay the same, and that no peak rises."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.target import Kind, Target
from memc.ir.types import DType, TensorType
from memc.passes.layout.channels_last import write_last
from memc.passes.layout.layout_forms import has_last_form
from memc.passes.manager import PassManager
from memc.passes.pipelines import Kernels, Precision, pipeline

PLAIN = {"transpose_a": False, "transpose_b": False}
ONE = {"strides": (1, 1), "dilations": (1, 1), "group": 1}


def network(images: int = 32, size: tuple[int, int] = (64, 64), dtype: DType = DType.F32) -> Module:
    """Two branches put side by side, a pool, a residual block, and a mean of all pixels."""
    rng = np.random.default_rng(2)
    x = Value("x", TensorType(dtype, (images, 3, *size)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)

    def weight(*shape: int) -> Value:
        return b.constant((rng.normal(size=shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype(dtype.numpy))

    def conv(v: Value, channels: int, kernel: int) -> Value:
        w, bias = weight(channels, v.type.shape[1], kernel, kernel), weight(channels)
        y = b.op("conv", [v, w, bias], pads=(kernel // 2,) * 4, **ONE)
        return y if y.type.dtype is dtype else b.op("cast", [y], to=dtype)

    h = b.op("relu", [conv(x, 32, 3)])
    h = b.op("concat", [b.op("relu", [conv(h, 32, 3)]), b.op("relu", [conv(h, 32, 1)])], axis=1)
    h = b.op("max_pool", [h], kernel=(3, 3), pads=(1,) * 4, strides=(2, 2), dilations=(1, 1))
    h = b.op("relu", [b.op("add", [conv(b.op("relu", [conv(h, 64, 3)]), 64, 3), h])])
    function.returns = [b.op("reduce_mean", [h], axes=(2, 3), keepdims=False)]
    function.result_names = ["y"]
    return module


def planned(
    module: Module, target: Kind = "cuda", kernels: Kernels = "auto", precision: Precision = "tf32", level: int = 2
) -> Module:
    module.target = Target.of(target)
    PassManager.parse(pipeline(level, target, kernels, precision=precision)).run(module)
    return module


def kinds(module: Module) -> Counter[str]:
    """How many ops of each name there are, those of fused groups, too."""
    return Counter(inner.name for op in module.main.ops for inner in (op.region.ops if op.region is not None else [op]))


def test_all_between_convolutions_has_the_channels_last() -> None:
    module = planned(network())
    found = kinds(module)
    assert found["conv_channels_last"] == 5 and found["max_pool_channels_last"] == 1
    assert found["conv"] == found["max_pool"] == 0
    assert found["transpose"] == found["pad"] == 1  # Of the input alone, three channels of four.
    symbols = Counter(op.plan.library_kernel for op in module.main.ops if op.plan.library_kernel)
    assert symbols == {"memc.cuda.conv_channels_last": 5}
    assert all(op.plan.precision == "tf32" for op in module.main.ops if op.plan.library_kernel)


def test_weights_are_laid_out_alike() -> None:
    before, after = network().weights, planned(network()).weights
    for name, array in after.items():
        stem = name.removesuffix("_channels_last")
        if stem == name:
            continue
        given = before[stem]
        laid = np.moveaxis(array, -1, 1)
        np.testing.assert_array_equal(laid[:, : given.shape[1]], given)
        assert not laid[:, given.shape[1] :].any()
    assert sum(name.endswith("_channels_last") for name in after) == 5
    assert not any(f"{name}_channels_last" in after for name in after)  # No second copy.


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions gain, too."""
    monkeypatch.setattr("memc.passes.layout.layout_choice.UNSURE", -1e-4)


@pytest.mark.parametrize("images", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("level", [2, 3])
def test_results_stay_the_same(eager: None, images: int, level: int) -> None:
    x = np.random.default_rng(3).normal(size=(images, 3, 17, 16)).astype(np.float32)
    module = planned(network(images, (17, 16)), level=level)
    # A concat of one image costs nothing as it is.
    assert kinds(module)["conv_channels_last"] == (5 if images > 1 else 0)
    expected = evaluate(network(images, (17, 16)), {"x": x})["y"]
    found = evaluate_in_arena(module, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_halves(precision: Precision) -> None:
    module = planned(network(), precision=precision)
    found = kinds(module)
    assert found["conv_channels_last"] == 5 and found["conv"] == 0
    symbols = Counter(op.plan.library_kernel for op in module.main.ops if op.plan.library_kernel)
    assert symbols == {"memc.cuda.conv_channels_last": 5}
    first = next(op for op in module.main.ops if op.plan.library_kernel)
    assert first.operands[0].type.shape == (32, 64, 64, 8)  # Eight channels are a vector.


@pytest.mark.parametrize("images", [2, 3, 7])
@pytest.mark.parametrize(("precision", "limit"), [("f16", 4e-3), ("bf16", 3e-2)])
def test_results_in_halves(eager: None, precision: Precision, limit: float, images: int) -> None:
    x = np.random.default_rng(3).normal(size=(images, 3, 17, 15)).astype(np.float32)
    module = planned(network(images, (17, 15)), precision=precision)
    assert kinds(module)["conv_channels_last"] == 5
    expected = evaluate(network(images, (17, 15)), {"x": x})["y"]
    found = evaluate_in_arena(module, {"x": x})["y"]
    assert np.linalg.norm(found - expected) < limit * np.linalg.norm(expected)


def step(images: int = 3) -> Module:
    """A training step of a small network without bias gradients of its own."""
    module = network(images, (12, 12))
    b = IRBuilder(module, module.main, module.main.ops)
    y = module.main.returns[0]
    module.main.returns = [b.op("matmul", [y, b.constant(np.eye(64, 4, dtype=np.float32))], **PLAIN)]
    return module


def test_training_steps(eager: None) -> None:
    """Left alone unless asked for; then their results are the same."""
    rng = np.random.default_rng(5)
    inputs: dict[str, np.ndarray] = {"x": rng.normal(size=(3, 3, 12, 12)).astype(np.float32)}
    results = []
    for text in ("", "channels-last{target=cuda tf32}", "channels-last{target=cuda tf32 training}"):
        module = step()
        passes = ["build-gradient", "materialize-returns", "canonicalize", "decompose", "canonicalize"]
        PassManager.parse(",".join([*passes, *filter(None, [text])])).run(module)
        names = kinds(module)
        assert bool(names["conv_grad_weight_channels_last"]) == ("training" in text)
        for p in module.main.params:
            if p.role is not Role.WEIGHT and p.name not in inputs:
                integer = not p.type.dtype.is_float
                value = rng.integers(0, 4, p.type.shape) if integer else rng.uniform(0.01, 0.1, p.type.shape)
                inputs[p.name] = module.weights.get(p.name, value.astype(p.type.dtype.numpy))
        given = {p.name: inputs[p.name] for p in module.main.params if p.role is not Role.WEIGHT}
        results.append(evaluate(module, given))
    assert len(results[0]) > 5
    for name, value in results[0].items():
        for other in results[1:]:
            np.testing.assert_allclose(other[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "kernels", "precision", "level"),
    [
        ("cuda", "auto", "f32", 2),
        ("cuda", "generated", "tf32", 2),
        ("llvm", "auto", "f32", 2),
        ("cuda", "auto", "tf32", 1),
        ("cuda", "auto", "tf32", 0),
    ],
)
def test_nothing_changes_elsewhere(target: Kind, kernels: Kernels, precision: Precision, level: int) -> None:
    assert "channels-last" not in pipeline(level, target, kernels, precision=precision)


@pytest.mark.parametrize(("images", "size"), [(1, (32, 33)), (8, (32, 32)), (32, (16, 16))])
def test_the_peak_does_not_rise(eager: None, images: int, size: tuple[int, int]) -> None:
    """But for the few bytes that the library's calls take for indices."""
    module = network(images, size)
    module.target = Target.of("cuda")
    PassManager.parse(pipeline(2, "cuda", precision="tf32").replace("channels-last{tf32},", "")).run(module)
    assert arena_bytes(planned(network(images, size)).main, 256) <= arena_bytes(module.main, 256) + (1 << 14)


def test_small_images_stay_as_they_are() -> None:
    assert kinds(planned(network(1, (8, 8))))["conv_channels_last"] == 0


def test_a_result_is_given_as_it_was(eager: None) -> None:
    module = network(8, (16, 16))
    *_, relu = (op for op in module.main.ops if op.name == "relu")
    module.main.returns.append(relu.result)
    module.main.result_names.append("last")
    x = np.random.default_rng(3).normal(size=(8, 3, 16, 16)).astype(np.float32)
    expected = evaluate(module, {"x": x})["last"]
    found = evaluate_in_arena(planned(module), {"x": x})["last"]
    assert kinds(module)["conv_channels_last"] and found.shape == (8, 64, 8, 8)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_image_that_is_spread_over_volumes() -> None:
    """Of a value with fewer axes than the result, other axes are the channels."""
    rng = np.random.default_rng(4)
    image = Value("image", TensorType(DType.F32, (8, 4, 5, 6)), role=Role.INPUT)
    volume = Value("volume", TensorType(DType.F32, (2, 8, 4, 5, 6)), role=Role.INPUT)
    function = Function([image, volume])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    w = [b.constant(rng.normal(size=shape).astype(np.float32)) for shape in ((4, 4, 1, 1), (8, 8, 1, 1, 1))]
    a = b.op("conv", [image, w[0]], strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), group=1)
    c = b.op("conv", [volume, w[1]], strides=(1,) * 3, pads=(0,) * 6, dilations=(1,) * 3, group=1)
    function.returns = [b.op("add", [a, c])]
    function.result_names = ["y"]
    inputs = {v.name: rng.normal(size=v.type.shape).astype(np.float32) for v in (image, volume)}
    expected = evaluate(module, inputs)["y"]
    write_last(module, function, {op for op in function.ops if has_last_form(op, tf32=True)})
    assert [op.name for op in function.ops if op.name.startswith("conv")] == ["conv_channels_last"] * 2
    np.testing.assert_allclose(evaluate(module, inputs)["y"], expected, rtol=1e-5, atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Mirror policies: what they keep, what memory a step then needs, and that its results stay the same bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.errors import UsageError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.training import mirror
from memc.passes.training.mirror import cheap_counts, sublinear_counts, training_peak

WIDTH, BATCH = 8, 64


def residual(layers: int) -> Module:
    """h += tanh(relu(h w)), layer after layer."""
    function = Function([])
    module = Module([function])
    rng = np.random.default_rng(0)
    h = Value("x", TensorType(DType.F32, (BATCH, WIDTH)), role=Role.INPUT)
    function.params.append(h)
    b = IRBuilder(module, function, function.ops)
    for number in range(layers):
        name = f"w{number}"
        w = Value(name, TensorType(DType.F32, (WIDTH, WIDTH)), role=Role.WEIGHT)
        function.params.append(w)
        module.weights[name] = (0.3 * rng.normal(size=w.type.shape)).astype(np.float32)
        product = b.op("matmul", [h, w], transpose_a=False, transpose_b=False)
        h = b.op("add", [h, b.op("tanh", [b.op("relu", [product])])])
    function.returns = [h]
    function.result_names = ["y"]
    return module


def memory(module: Module):
    return lambda counts: training_peak(module, module.main, counts)


def test_memory_is_of_the_target() -> None:
    """In units of 4096 bytes, of which every value takes one; the activations take 2048."""
    module = residual(4)
    small = memory(module)({})
    module.target = Target.of("cuda", alignment=4096)
    large = memory(module)({})
    assert large % 4096 == 0 and 2 * small <= large
    seen = []
    build_forward = mirror._Forward.of

    def recorded(function: Function, window: int, alignment: int) -> mirror._Forward:
        seen.append(alignment)
        return build_forward(function, window, alignment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror._Forward, "of", recorded)
        PassManager.parse("mirror").run(module)
    assert seen == [4096]


def test_cheap_drops_what_is_not_a_product() -> None:
    counts = cheap_counts(residual(2).main)
    assert [(op.name, count) for op, count in counts.items()][:4] == [
        ("matmul", 0),
        ("relu", 1),
        ("tanh", 1),
        ("add", 1),
    ]


def test_sublinear_keeps_what_crosses_a_few_cuts() -> None:
    module = residual(16)
    counts = sublinear_counts(module.main, memory(module))
    kept = [op.name for op, count in counts.items() if count == 0]
    # Between layers only h crosses; in the first layer, whose operand is the input, any one result does.
    assert set(kept[1:]) == {"add"} and 2 <= len(kept) <= 9


def test_memory_grows_like_the_square_root_of_the_depth() -> None:
    peaks = []
    for layers in (9, 36):
        module = residual(layers)
        plain = memory(module)({})
        peaks.append(memory(module)(sublinear_counts(module.main, memory(module))))
        assert peaks[-1] < plain / 2
    assert math.log(peaks[1] / peaks[0], 4) < 0.6


def test_recursion_needs_less_than_one_level() -> None:
    module = residual(36)
    one, two = (memory(module)(sublinear_counts(module.main, memory(module), depth)) for depth in (1, 2))
    assert two < one


@pytest.mark.parametrize("text", ["mirror{policy=cheap},", "mirror,", "mirror{depth=2},"])
def test_the_step_computes_the_same_bits(text: str) -> None:
    rng = np.random.default_rng(1)
    feeds = {"x": rng.normal(size=(BATCH, WIDTH)), "labels": rng.normal(size=(BATCH, WIDTH))}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    found = []
    for prefix in ("", text):
        module = residual(8)
        memc.PassManager.parse(prefix + "build-gradient{loss=mse optimizer=none},canonicalize").run(module)
        assert any(op.plan.recompute for op in module.main.ops) == bool(prefix)
        found.append({name: array.tobytes() for name, array in evaluate(module, feeds).items()})
    assert found[0] == found[1]


def test_a_depth_of_nothing() -> None:
    with pytest.raises(UsageError, match="'depth' of mirror: expected a whole number from 1 to 64, got '0'"):
        memc.PassManager.parse("mirror{depth=0}")


def test_a_function_that_returns_its_loss() -> None:
    module = residual(16)
    b = IRBuilder(module, module.main, module.main.ops)
    module.main.returns = [b.op("reduce_mean", module.main.returns, axes=(0, 1), keepdims=False)]
    counts = sublinear_counts(module.main, memory(module))
    assert memory(module)(counts) < memory(module)({}) / 2


def test_build_gradient_takes_the_policy() -> None:
    texts = ["mirror{policy=cheap},build-gradient{loss=mse}", "build-gradient{loss=mse mirror=cheap}"]
    printed = []
    for text in texts:
        module = residual(4)
        memc.PassManager.parse(text).run(module)
        printed.append(str(module))
    assert printed[0] == printed[1] and "recompute" in printed[0]


def test_build_gradient_checks_the_depth() -> None:
    with pytest.raises(
        UsageError, match="'mirror-depth' of build-gradient: expected a whole number from 1 to 64, got '0'"
    ):
        memc.PassManager.parse("build-gradient{mirror-depth=0}")

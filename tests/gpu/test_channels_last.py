# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: convolutions of images with channels last, and a network of them, against numpy. Skips itself
elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_groups import Array, Step, make_op
from split_calls import call, rounded_to_tf32

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate, run_op
from memc.ir.module import Module
from memc.ir.types import DType, TensorType

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(11)

CASES = [
    # images, height, width, channels, filters, kernel, stride
    (2, 19, 17, 8, 16, 3, 1),
    (3, 18, 18, 4, 32, 3, 2),
    (2, 9, 9, 64, 96, 1, 1),
    (1, 12, 12, 32, 40, 5, 1),
]


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_convolutions(kernels: None, dtype: str, case: tuple[int, ...], residual: bool) -> None:
    import tvm

    images, height, width, channels, filters, kernel, stride = case
    if dtype == "f16" and channels % 8:
        pytest.skip("channels are no whole vectors")
    element: Any = {"f32": np.float32, "f16": np.float16}[dtype]

    def some(*shape: int) -> Array:
        return RNG.standard_normal(shape).astype(element)

    out = [(n - 1) // stride + 1 for n in (height, width)]
    arrays = [some(images, height, width, channels), some(filters, kernel, kernel, channels), some(filters)]
    arrays += [some(images, *out, filters)] if residual else []
    attrs = {"strides": (stride,) * 2, "pads": (kernel // 2,) * 4, "dilations": (1, 1), "group": 1}
    steps: list[Step] = [("conv_channels_last", (0, 1), attrs)]
    steps += [("cast", (len(arrays),), {"to": DType.F16})] if dtype == "f16" else []
    for added in (2, *([3] if residual else [])):
        steps.append(("add", (len(arrays) + len(steps) - 1, added), {}))
    steps.append(("relu", (len(arrays) + len(steps) - 1,), {}))
    op = make_op(arrays, steps)
    if dtype == "f32":
        op.plan = replace(op.plan, precision="tf32")
    wide = [a.astype(np.float64) for a in arrays]
    if dtype == "f32":
        wide[:2] = [rounded_to_tf32(a).astype(np.float64) for a in arrays[:2]]
    plain = [step for step in steps if step[0] != "cast"]
    moved = len(steps) - len(plain)
    plain = [(name, [n - moved if n > len(arrays) else n for n in at], more) for name, at, more in plain]
    (expected,) = run_op(make_op(wide, plain), wide)
    device = tvm.cuda(0)
    given = [tvm.runtime.tensor(a, device) for a in arrays]
    result = tvm.runtime.tensor(np.full(expected.shape, np.nan, element), device)
    call(op, given, result, tvm.runtime.empty((1 << 20,), "uint8", device))
    limit = 2e-2 if dtype == "f16" else 2e-3
    np.testing.assert_allclose(result.numpy().astype(np.float64), expected, atol=limit * np.abs(expected).max(), rtol=0)


GRADIENTS = [
    # x, w, strides, pads
    ((2, 19, 17, 8), (16, 3, 3, 8), (1, 1), (1, 1, 1, 1)),
    ((3, 18, 18, 4), (32, 3, 3, 4), (2, 2), (1, 1, 1, 1)),
    ((2, 9, 9, 64), (96, 1, 1, 64), (1, 1), (0, 0, 0, 0)),
    ((2, 5, 9, 8, 8), (16, 3, 3, 3, 8), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    ((2, 4, 5, 6, 16), (8, 1, 1, 1, 16), (1, 1, 1), (0,) * 6),
]


@pytest.mark.parametrize("what", ["forward", "data", "weights"])
@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_and_volumes(kernels: None, case: tuple[tuple[int, ...], ...], what: str) -> None:
    import tvm

    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in case[:2])
    attrs: dict[str, Any] = {"strides": case[2], "pads": case[3], "dilations": (1,) * len(case[2]), "group": 1}
    made = make_op([x, w], [("conv_channels_last", (0, 1), attrs)]).result.type.shape
    g = RNG.standard_normal(made).astype(np.float32)
    ends = zip(x.shape[1:-1], w.shape[1:-1], g.shape[1:-1], case[2], case[3])
    left = tuple(n + 2 * pad - taps - stride * (out - 1) for n, taps, out, stride, pad in ends)
    given, step = {
        "forward": ([x, w], ("conv_channels_last", (0, 1), attrs)),
        "data": ([g, w], ("conv_transpose_channels_last", (0, 1), {**attrs, "output_padding": left})),
        "weights": ([x, g], ("conv_grad_weight_channels_last", (0, 1), {**attrs, "kernel": w.shape[1:-1]})),
    }[what]
    op = make_op(given, [step])
    op.plan = replace(op.plan, precision="tf32")
    wide = [rounded_to_tf32(a).astype(np.float64) for a in given]
    (expected,) = run_op(make_op(wide, [step]), wide)
    device = tvm.cuda(0)
    result = tvm.runtime.tensor(np.full(expected.shape, np.nan, np.float32), device)
    call(op, [tvm.runtime.tensor(a, device) for a in given], result, tvm.runtime.empty((1 << 22,), "uint8", device))
    np.testing.assert_allclose(result.numpy(), expected, atol=2e-3 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("precision", ["tf32", "f16", "bf16"])
def test_a_network(arch: str, precision: Any, tmp_path: Path) -> None:
    x = Value("x", TensorType(DType.F32, (32, 3, 64, 64)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)

    def conv(v: Value, channels: int, kernel: int) -> Value:
        shape = (channels, v.type.shape[1], kernel, kernel)
        w = b.constant((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))
        window = {"strides": (1, 1), "pads": (kernel // 2,) * 4, "dilations": (1, 1), "group": 1}
        return b.op("relu", [b.op("conv", [v, w, b.constant(np.ones(channels, np.float32) / 8)], **window)])

    h = conv(x, 32, 3)
    h = b.op("concat", [conv(h, 32, 3), conv(h, 32, 1)], axis=1)
    h = b.op("max_pool", [h], kernel=(3, 3), pads=(1,) * 4, strides=(2, 2), dilations=(1, 1))
    h = b.op("add", [conv(conv(h, 64, 3), 64, 3), h])
    function.returns = [b.op("reduce_mean", [h], axes=(2, 3), keepdims=False)]
    function.result_names = ["y"]
    given = RNG.standard_normal((32, 3, 64, 64)).astype(np.float32)
    expected = evaluate(module, {"x": given})["y"]
    folder = tmp_path / "model.memc"
    done = memc.compile(module, folder, target="cuda", arch=arch, precision=precision)
    assert any(op.plan.library_kernel == "memc.cuda.conv_channels_last" for op in done.module.main.ops)
    found = np.asarray(memc.load(folder).run_numpy({"x": given})["y"], np.float64)
    assert np.linalg.norm(found - expected) < {"tf32": 2e-3, "f16": 5e-3, "bf16": 3e-2}[precision] * np.linalg.norm(
        expected
    )

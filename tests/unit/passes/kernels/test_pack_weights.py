# SPDX-License-Identifier: Apache-2.0
"""pack-weights, and what fuse-library joins to the CPU's kernels: which calls are made, and that results and peak stay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.ops.shared.packing import ColumnPanels, RowPanels
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.runtime.artifact import safetensors

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
PLAIN = {"transpose_a": False, "transpose_b": False}


def network() -> Module:
    """Convolutions with clip, residual and relu, one of them depthwise, a weight that two read, and products."""
    rng = np.random.default_rng(5)
    x = Value("x", TensorType(DType.F32, (1, 8, 12, 12)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)

    def weight(*shape: int) -> Value:
        return b.constant(rng.normal(size=shape).astype(np.float32))

    def conv(v: Value, w: Value, pad: int, group: int = 1, bias: bool = True) -> Value:
        extra = [weight(w.type.shape[0])] if bias else []
        return b.op("conv", [v, w, *extra], **{**WINDOW, "group": group, "pads": (pad,) * 4})

    h = b.op("clip", [conv(x, weight(20, 8, 1, 1), 0)], min=0.0, max=6.0)
    h = b.op("clip", [conv(h, weight(20, 1, 3, 3), 1, group=20)], min=0.0, max=6.0)
    h = b.op("relu", [b.op("add", [conv(h, weight(8, 20, 3, 3), 1), x])])
    shared = weight(8, 8, 1, 1)
    h = b.op("relu", [conv(h, shared, 0, bias=False)])
    h = b.op("relu", [conv(h, shared, 0, bias=False)])
    h, other = (b.op("reshape", [v], shape=(8, 144)) for v in (h, x))
    h = b.op("add", [b.op("add", [b.op("matmul", [h, weight(144, 144)], **PLAIN), weight(144)]), other])
    returned = weight(144, 16)
    function.returns = [b.op("matmul", [h, returned], **PLAIN), b.op("matmul", [h, weight(144, 9)], **PLAIN), returned]
    function.result_names = ["y", "z", "w"]
    return module


def calls(module: Module) -> list[tuple[str, list[str]]]:
    """The library calls: symbol, and what each computes."""
    found = []
    for op in module.main.ops:
        if op.plan.library_kernel is not None:
            inner = [op] if op.region is None else op.region.ops
            found.append((str(op.plan.library_kernel).removeprefix("memc.cpu."), [o.name for o in inner]))
    return found


def test_what_is_packed_and_joined() -> None:
    module = network()
    PassManager.parse(pipeline(2)).run(module)
    assert calls(module) == [
        ("packed_conv2d", ["conv", "clip"]),
        ("depthwise_conv2d", ["conv", "clip"]),
        ("packed_conv2d", ["conv", "add", "relu"]),
        ("packed_conv2d", ["conv", "relu"]),
        ("packed_conv2d", ["conv", "relu"]),
        ("packed_matmul", ["matmul", "add", "add"]),
        ("packed_matmul", ["matmul"]),  # What is returned is a copy of the weight.
        ("matmul", ["matmul"]),  # 9 columns.
    ]


def test_results_and_peak_stay() -> None:
    inputs = {"x": np.random.default_rng(1).normal(size=(1, 8, 12, 12)).astype(np.float32)}
    expected = evaluate(network(), inputs)
    peaks = []
    for left_out in ((), ("pack-weights", "fuse-library")):
        module = network()
        manager = PassManager.parse(pipeline(2))
        manager.passes = [item for item in manager.passes if item.name not in left_out]
        manager.run(module)
        peaks.append(arena_bytes(module.main))
        for found in (evaluate(module, inputs), evaluate_in_arena(module, inputs)):
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
    assert peaks[0] <= peaks[1]


def test_artifact(tmp_path: Path) -> None:
    """Packed weights take no more bytes, and the plan says how they lie."""
    inputs = {"x": np.random.default_rng(1).normal(size=(1, 8, 12, 12)).astype(np.float32)}
    expected = evaluate(network(), inputs)
    plain = memc.compile(network(), tmp_path / "plain.memc", disabled_passes=["pack-weights"])
    packed = memc.compile(network(), tmp_path / "packed.memc")
    found = packed.load()(**inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-3)
    plans = [json.loads((c.path / "plan.json").read_text()) for c in (plain, packed) if c.path is not None]
    sizes = [{space["name"]: space["bytes"] for space in p["spaces"]} for p in plans]
    assert sizes[1]["weights"] == sizes[0]["weights"] and sizes[1]["arena"] <= sizes[0]["arena"]
    layouts = {w["layout"] for w in plans[1]["weights"]}
    assert layouts == {"row-major", "row-panels[1]", "column-panels"}
    assert {w["layout"] for w in plans[0]["weights"]} == {"row-major"}
    assert packed.path is not None
    stored = safetensors.read(packed.path / "weights.safetensors")
    assert {s["name"] for s in plans[1]["weights"]} == set(stored)


def test_generated_kernels_have_plain_weights() -> None:
    module = network()
    PassManager.parse(pipeline(2, kernels="generated")).run(module)
    assert calls(module) == []


def test_layouts() -> None:
    rows = np.arange(2 * 8 * 3, dtype=np.float32).reshape(16, 3)
    packed = RowPanels(2).pack(rows)
    assert packed[:7].tolist() == [0, 3, 6, 9, 12, 15, 1]  # Six rows, column by column.
    assert packed[18:24].tolist() == [18, 21, 19, 22, 20, 23]  # The two that are left of the first matrix.
    assert packed[24] == 24
    columns = np.arange(2 * 32, dtype=np.float32).reshape(2, 32)
    packed = ColumnPanels().pack(columns)
    assert packed[[0, 15, 16, 31, 32]].tolist() == [0, 15, 32, 47, 16]
    np.testing.assert_array_equal(ColumnPanels(transposed=True).pack(columns.T), packed)

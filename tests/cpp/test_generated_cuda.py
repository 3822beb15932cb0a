# SPDX-License-Identifier: Apache-2.0
"""Generated CUDA kernels, run on the host, against the numpy references of their ops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from generated_cuda import check_module, needs_compilers
from onnx import helper, numpy_helper

import memc
from memc.ir.text.parser import parse
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.kernel_table import KernelTable

RNG = np.random.default_rng(5)

pytestmark = needs_compilers


def some(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def model(nodes: list[Any], inputs: dict[str, Any], constants: dict[str, Any] | None = None) -> bytes:
    """A model whose result is y."""

    def info(name: str, array: Any) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    given = [info(name, array) for name, array in inputs.items()]
    kept = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_empty_tensor_value_info("y")], kept)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())


def check(proto: bytes, inputs: dict[str, Any], folder: Path, **options: Any) -> int:
    planned = memc.compile(proto, target="cuda", plan_only=True, **options)
    return check_module(planned.module, inputs, folder)


def node(kind: str, inputs: str, output: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attrs)


@pytest.mark.parametrize("pads", [(2, 3, 1, 2), (1, 1, 1, 1), (0, 3, 0, 2), (3, 0, 4, 5), (1, 4, 0, 1)])
def test_pads_that_wrap(pads: tuple[int, ...], tmp_path: Path) -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    proto = model([node("Pad", "x p", mode="wrap")], {"x": x}, {"p": np.array(pads, np.int64)})
    assert check(proto, {"x": x}, tmp_path) == 1


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 1, 7), (1, 6, 6)])
def test_pads_that_wrap_along_three_axes(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = some(*shape)
    pads = [n // 2 for n in shape] + [n - 1 for n in shape]
    nodes = [node("Pad", "x p", "w", mode="wrap"), node("Exp", "w", "e"), node("Sub", "e w")]
    assert check(model(nodes, {"x": x}, {"p": np.array(pads, np.int64)}), {"x": x}, tmp_path) == 1


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_integers_wrap(dtype: Any, tmp_path: Path) -> None:
    """In one kernel with what reads them, so that nothing is stored between."""
    info = np.iinfo(dtype)
    x = np.array([info.max, info.min, info.max // 2 + 1, info.max // 3 + 1, 7, 1], dtype)
    wrapped = [node("Mul", "x c", "a"), node("Div", "a c", "b"), node("Sub", "b x", "d"), node("Add", "d a")]
    assert check(model(wrapped, {"x": x}, {"c": np.array(3, dtype)}), {"x": x}, tmp_path) == 1


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_reductions_of_integers_wrap(dtype: Any, kind: str, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    x = np.array([[info.max, info.max, 5], [info.min, 7, info.max], [3, 2, 1]], dtype)
    nodes = [node(kind, "x a", "r"), node("Div", "r c")]
    proto = model(nodes, {"x": x}, {"a": np.array([1], np.int64), "c": np.array(3, dtype)})
    assert check(proto, {"x": x}, tmp_path) >= 1


SPECIAL = np.array([np.inf, -np.inf, np.nan, 1, -0.0, 0.0, 3e38, 65504], np.float32)
OTHER = np.array([np.nan, np.inf, 1, np.nan, -0.0, 1, 3e38, 65504], np.float32)

FUSED = {
    "difference of equals": [node("Exp", "x", "a"), node("Exp", "x", "b"), node("Sub", "a b")],
    "sum less a term": [node("Add", "x z", "a"), node("Sub", "a z")],
    "term less the sum": [node("Add", "z x", "a"), node("Sub", "x a")],
    "quotient of equals": [node("Exp", "x", "a"), node("Exp", "x", "b"), node("Div", "a b")],
    "less or equal, or greater": [
        node("LessOrEqual", "x z", "a"),
        node("Less", "z x", "b"),
        node("Or", "a b", "c"),
        node("Cast", "c", to=onnx.TensorProto.FLOAT),
    ],
    "neither": [
        node("LessOrEqual", "x z", "a"),
        node("Less", "z x", "b"),
        node("Where", "b x k", "w"),
        node("Where", "a z w"),
    ],
    "equal to itself": [
        node("Exp", "x", "a"),
        node("Exp", "x", "b"),
        node("Equal", "a b", "c"),
        node("Cast", "c", to=onnx.TensorProto.FLOAT),
    ],
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_floats_that_are_no_numbers(name: str, dtype: Any, tmp_path: Path) -> None:
    with np.errstate(over="ignore"):
        inputs = {"x": SPECIAL.astype(dtype), "z": OTHER.astype(dtype)}
    proto = model(FUSED[name], inputs, {"k": np.array(5, dtype)})
    used = onnx.load_from_string(proto)
    given = {n for step in used.graph.node for n in step.input}
    unused = [i for i in used.graph.input if i.name not in given]
    for i in unused:
        used.graph.input.remove(i)
    with np.errstate(all="ignore"):
        assert check(used.SerializeToString(), {n: a for n, a in inputs.items() if n in given}, tmp_path) == 1


def network(batch: int, channels: int, size: int) -> tuple[bytes, dict[str, Any]]:
    x = some(batch, 3, size, size)
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("BatchNormalization", "c s t m v", "n"),
        node("Relu", "n", "h"),
        node("GlobalAveragePool", "h", "p"),
        node("Flatten", "p", "q"),
        node("MatMul", "q f"),
    ]
    scale = {"s": np.ones(channels, np.float32), "t": np.zeros(channels, np.float32)}
    moments = {"m": np.zeros(channels, np.float32), "v": np.ones(channels, np.float32)}
    weights = {"w": some(channels, 3, 3, 3), "b": some(channels), "f": some(channels, 4)}
    return model(nodes, {"x": x}, {**weights, **scale, **moments}), {"x": x}


@pytest.mark.parametrize("precision", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("shape", [(4, 8, 8), (2, 64, 7), (1, 16, 7), (3, 5, 9), (16, 8, 8), (7, 4, 12)])
def test_training_with_batch_normalization(shape: tuple[int, int, int], precision: str, tmp_path: Path) -> None:
    """Small planes: what threads share, and what they do by themselves, have indices in common."""
    proto, inputs = network(*shape)
    options = {"train": memc.BuildGradient(optimizer="sgd"), "precision": precision}
    planned = memc.compile(proto, target="cuda", plan_only=True, **options)
    labels = [p for p in planned.module.main.params if p.name not in inputs and p.name not in planned.module.weights]
    given = {p.name: RNG.integers(0, 4, p.type.shape).astype(p.type.dtype.numpy) for p in labels}
    assert check_module(planned.module, {**inputs, **given}, tmp_path, 2e-3) >= 5


def test_recurrence_in_both_directions_with_lengths(tmp_path: Path) -> None:
    h = 3
    inputs = {"x": some(4, 3, 2), "n": np.array([4, 1, 3], np.int32)}
    lstm = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "n", "", "", "p"], ["", "y"], hidden_size=h, direction="bidirectional"
    )
    weights = {"w": some(2, 4 * h, 2), "r": some(2, 4 * h, h), "b": some(2, 8 * h), "p": some(2, 3 * h)}
    assert check(model([lstm], inputs, weights), inputs, tmp_path) >= 1


def test_constants_of_64_bits(tmp_path: Path) -> None:
    x = np.array([3, 2**64 - 1, 7, 2**63], np.uint64)
    for n, (low, high) in enumerate([(4, 2**64 - 2), (2**63, 2**63 + 5), (0, 2**63 - 1)]):
        proto = model([node("Clip", "x l h")], {"x": x}, {"l": np.uint64(low), "h": np.uint64(high)})
        (tmp_path / str(n)).mkdir()
        assert check(proto, {"x": x}, tmp_path / str(n)) == 1


SHORT = {"int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64"}


@pytest.mark.parametrize("shape, axis", [((2, 3000), 1), ((700, 3), 0)])
@pytest.mark.parametrize("dtype", SHORT)
def test_reductions_of_integers_are_shared(dtype: str, shape: tuple[int, int], axis: int, tmp_path: Path) -> None:
    """By the threads of a team: along rows in warps, along columns in shared memory."""
    x = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    short, kept = SHORT[dtype], (2,) if axis else (3,)
    names = ["max", "min", "sum", "prod"]
    results = ", ".join([f"{short}[{kept[0]}]"] * 4)
    ops = "".join(
        f"  %{n} = reduce_{n}(%x) {{axes = [{axis}], keepdims = false}} : {short}[{kept[0]}]\n" for n in names
    )
    text = (
        f"func @main(%x: {short}[{shape[0]},{shape[1]}] {{role = input}}) -> ({results}) {{\n{ops}"
        "  return %max, %min, %sum, %prod\n}\n"
    )
    planned = memc.compile(parse(text, "test"), target="cuda", plan_only=True)
    table = KernelTable(CodeTarget(planned.module.target))
    kernels = [table.kernels(op, None) for op in planned.module.main.ops]
    scripts = [table.functions[k.name].script() for found in kernels for k in found]
    assert scripts and all("threadIdx" in s and "reduce" in s for s in scripts)
    check_module(planned.module, {"x": x}, tmp_path)


@pytest.mark.parametrize("data", ["random", "equal", "nan"])
def test_arg_max_of_a_long_axis(data: str, tmp_path: Path) -> None:
    x = {"random": some(5000), "equal": np.ones(5000, np.float32), "nan": some(5000)}[data]
    if data == "nan":
        x[[700, 4000]] = np.nan
    check(model([node("ArgMax", "x", axis=0, keepdims=0)], {"x": x}), {"x": x}, tmp_path)


IMAGES = """
func @main(%x: f32[2,7,6,12] {role = input}, %w: f32[6,3,2,12] {role = input}, %b: f32[6] {role = input}) -> (f32[2,4,6,18], f32[2,1,1,18]) {
  %c = conv_channels_last(%x, %w, %b) {group = 1, strides = [2, 1], pads = [1, 0, 1, 1], dilations = [1, 1]} : f32[2,4,6,6]
  %r = relu(%c) : f32[2,4,6,6]
  %m = max_pool_channels_last(%x) {kernel = [3, 3], strides = [2, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[2,4,6,12]
  %s = sum_pool_channels_last(%m) {kernel = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[2,4,6,12]
  %y = concat(%r, %s) {axis = 3} : f32[2,4,6,18]
  %z = reduce_sum(%y) {axes = [1, 2], keepdims = true} : f32[2,1,1,18]
  return %y, %z
}
"""


def test_images_with_channels_last(tmp_path: Path) -> None:
    planned = memc.compile(parse(IMAGES, "test"), target="cuda", plan_only=True)
    assert not any(op.plan.library_kernel for op in planned.module.main.ops)
    inputs = {"x": some(2, 7, 6, 12), "w": some(6, 3, 2, 12), "b": some(6)}
    assert check_module(planned.module, inputs, tmp_path) >= 4

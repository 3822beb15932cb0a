# SPDX-License-Identifier: Apache-2.0
"""What follows convolutions, products and pools in one kernel: of other types than their sums, with operands by channel."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import tirx

import memc
from memc.ir.evaluate import evaluate
from memc.runtime.codegen.expression_scopes import is_defined

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

from fuzz_epilogues import check
from random_epilogues import draw, options

C = 8


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """memc's warnings reach `caplog`, whatever commands that ran before have set up."""
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING, "memc")


def model(
    nodes: list[onnx.NodeProto], x: np.ndarray[Any, Any], weights: dict[str, Any], result: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def node(op: str, given: str, made: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, given.split(), [made], **attrs)


@pytest.mark.parametrize("kernels", ["auto", "generated"])
@pytest.mark.parametrize(
    ("batch", "height", "width", "made"), [(1, 5, 5, 3), (2, 8, 8, 16), (3, 7, 4, 5), (7, 1, 9, 4)]
)
@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [1, 2, 1, 0]])
def test_quantized_convolutions_by_channel(
    caplog, kernels: str, batch: int, height: int, width: int, made: int, pads: Any
):
    """As quantizers write them: scales for each channel, a bias and padding. Exact, but where a tie is rounded."""
    rng = np.random.default_rng(made)
    x = rng.integers(0, 256, (batch, 2, height, width)).astype(np.uint8)
    weights = {
        "xs": np.float32(0.05),
        "xz": np.uint8(128),
        "w": rng.integers(-128, 128, (made, 2, 3, 3)).astype(np.int8),
        "ws": rng.uniform(0.01, 0.05, made).astype(np.float32),
        "wz": np.zeros(made, np.int8),
        "ys": np.float32(3.1),
        "yz": np.uint8(100),
        "b": rng.integers(-2000, 2000, made).astype(np.int32),
    }
    proto = model([node("QLinearConv", "x xs xz w ws wz ys yz b", "y", pads=pads)], x, weights, TensorProto.UINT8)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    found = memc.compile(proto, kernels=kernels).load().run_numpy({"x": x})["y"]
    apart = np.abs(found.astype(int) - expected.astype(int))
    assert apart.max() <= 1 and (apart > 0).mean() < 0.02
    assert not caplog.records


CHANNELS = {
    "PRelu": [node("PRelu", "c s", "y")],
    "batch norm": [node("Relu", "c", "r"), node("BatchNormalization", "r g h m v", "y")],
    "scale and shift": [node("Relu", "c", "r"), node("Mul", "r s", "q"), node("Add", "q t", "y")],
    "three": [node("Mul", "c s", "p"), node("Add", "p t", "q"), node("PRelu", "q u", "r"), node("Add", "r e", "y")],
    "resize": [
        node("Cast", "c", "r", to=TensorProto.FLOAT),
        node("Resize", "r  sc", "q", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("CastLike", "q x", "y"),
    ],
    "gather": [
        node("Cast", "c", "r", to=TensorProto.FLOAT),
        node("Gather", "r i", "q", axis=2),
        node("CastLike", "q x", "y"),
    ],
}
CHANNELS["resize"][1].input[:] = ["r", "", "sc"]


@pytest.mark.parametrize("after", CHANNELS)
@pytest.mark.parametrize("producer", ["Conv", "ConvTranspose", "padded"])
@pytest.mark.parametrize("type", ["f16", "f16 model", "bf16", "f64"])
def test_operands_by_channel_behind_sums_of_another_type(caplog, type: str, producer: str, after: str) -> None:
    rng = np.random.default_rng(8)
    stored = {"f16 model": np.float16, "f64": np.float64}.get(type, np.float32)

    def data(*shape: int) -> Any:
        return rng.normal(size=shape).astype(stored)

    x, transposed = data(2, 4, 9, 10), producer == "ConvTranspose"
    weights = {
        "w": (data(4, C, 3, 3) if transposed else data(C, 4, 3, 3)) * stored(0.2),
        **{name: data(C) for name in "bghm"},
        **{name: data(C, 1, 1) for name in "su"},
        "t": data(1, C, 1, 1),
        "e": data(2, C, 1, 1),
        "v": np.abs(data(C)) + stored(0.5),
        "sc": np.array([1, 1, 2, 2], np.float32),
        "i": np.repeat(np.arange(7), 2),
    }
    main = node(
        "ConvTranspose" if transposed else "Conv", "x w b", "c", pads=[1] * 4 if producer == "padded" else [0] * 4
    )
    proto = model([main, *CHANNELS[after]], x, weights, helper.np_dtype_to_tensor_dtype(np.dtype(stored)))
    expected = evaluate(memc.import_onnx(proto), {"x": x})["y"].astype(np.float64)
    precision = type if type in ("f16", "bf16") else "f32"
    found = memc.compile(proto, precision=precision, kernels="generated").load().run_numpy({"x": x})["y"]
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < {"f64": 1e-12, "bf16": 2e-2}.get(type, 2e-3)
    assert not caplog.records


@pytest.mark.parametrize("seed", range(24))
def test_random_epilogues(seed: int) -> None:
    """benchmarks/fuzz_epilogues.py does many more."""
    assert check(seed) == [], options(seed)


def test_a_seed_gives_one_model() -> None:
    first, again = draw(5), draw(5)
    assert first.model.SerializeToString() == again.model.SerializeToString()
    assert {n: a.tobytes() for n, a in first.inputs.items()} == {n: a.tobytes() for n, a in again.inputs.items()}


def function(inside: bool) -> Any:
    """Two loops, of which the second reads what the first, or what comes before both, binds."""
    i, j, v = (tirx.Var(name, "int32") for name in "ijv")
    buffer = tirx.decl_buffer((8,), "int32")
    bind = tirx.Bind(v, i + 1 if inside else tirx.IntImm("int32", 1))
    first = tirx.BufferStore(buffer, v, [i])
    one = tirx.For(i, 0, 8, tirx.ForKind.SERIAL, tirx.SeqStmt([bind, first]) if inside else first)
    two = tirx.For(j, 0, 8, tirx.ForKind.SERIAL, tirx.BufferStore(buffer, v * 2, [j]))
    return tvm.tirx.PrimFunc([buffer], tirx.SeqStmt([one, two] if inside else [bind, one, two]))


def test_variables_are_read_in_their_scope() -> None:
    assert is_defined(function(inside=False))
    assert not is_defined(function(inside=True))

# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's quantizers write for small networks of the shapes of ResNet-18, MobileNetV3 and a recurrent tagger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16

from memc.frontend.onnx import import_onnx
from memc.ir.evaluate import evaluate
from memc.measure.verification import verify

SIZE = 18
STEPS = 3e-2
"""The relative error of an output as a whole for which some values that are rounded to another step of 1 / 255 account."""


class Graph:
    """Nodes and weights of a network that is written down from input to output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)

    def data(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        values = np.asarray(self.rng.normal(size=shape) * scale + offset, np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def op(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"n{len(self.nodes)}", **attrs))
        return name

    def conv(self, x: str, into: int, out: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        weights = self.data(out, into // group, kernel, kernel, scale=(2 * group / (into * kernel * kernel)) ** 0.5)
        pads = [kernel // 2] * 4
        bias = self.data(out, scale=0.1)
        return self.op(
            "Conv", x, weights, bias, pads=pads, strides=[stride] * 2, group=group, kernel_shape=[kernel] * 2
        )

    def model(self, y: str, shape: list[Any], result: list[Any]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, result)],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def resnet() -> onnx.ModelProto:
    """A stem, a block with a plain residual, one with a projection, and a classifier."""
    g = Graph()
    x = g.op("Relu", g.conv("x", 3, 8, 7, stride=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = g.conv(g.op("Relu", g.conv(x, 8, 8, 3)), 8, 8, 3)
    x = g.op("Relu", g.op("Add", y, x))
    y = g.conv(g.op("Relu", g.conv(x, 8, 16, 3, stride=2)), 16, 16, 3)
    x = g.op("Relu", g.op("Add", y, g.conv(x, 8, 16, 1, stride=2)))
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    return g.model(g.op("Gemm", x, g.data(10, 16), g.data(10), transB=1), ["batch", 3, SIZE, SIZE], ["batch", 10])


def mobilenet() -> onnx.ModelProto:
    """Inverted residuals with squeeze and excitation, hard-swish, a concat, an average pool and a leaky unit."""
    g = Graph()
    x = g.op("HardSwish", g.conv("x", 3, 8, 3, stride=2))
    y = g.op("Relu", g.conv(g.op("Relu", g.conv(x, 8, 16, 1)), 16, 16, 3, group=16))
    gate = g.op("Relu", g.conv(g.op("GlobalAveragePool", y), 16, 4, 1))
    y = g.op("Mul", y, g.op("HardSigmoid", g.conv(gate, 4, 16, 1), alpha=1 / 6, beta=0.5))
    x = g.op("Add", x, g.conv(y, 16, 8, 1))
    # Means of nine never lie halfway between two integers, where any rounding of floats decides.
    pooled = g.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    x = g.op("Concat", g.op("Sigmoid", x), g.op("LeakyRelu", pooled, alpha=0.1), axis=1)
    x = g.op("HardSwish", g.conv(x, 16, 12, 1))
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    x = g.op("Gemm", g.op("HardSwish", g.op("Gemm", x, g.data(12, 16), g.data(16))), g.data(16, 5), g.data(5))
    return g.model(g.op("Softmax", x, axis=-1), ["batch", 3, SIZE, SIZE], ["batch", 5])


def tagger() -> onnx.ModelProto:
    """An LSTM in both directions over embedded tokens, and a product."""
    g, hidden, width = Graph(), 6, 5
    lstm = helper.make_node(
        "LSTM",
        ["x", g.data(2, 4 * hidden, width), g.data(2, 4 * hidden, hidden), g.data(2, 8 * hidden, scale=0.1)],
        ["states"],
        name="lstm",
        direction="bidirectional",
        hidden_size=hidden,
    )
    g.nodes.append(lstm)
    x = g.op("Transpose", "states", perm=[0, 2, 1, 3])
    shape = numpy_helper.from_array(np.array([0, 0, -1], np.int64), "shape")
    g.weights.append(shape)
    x = g.op("Reshape", x, "shape")
    return g.model(g.op("MatMul", x, g.data(2 * hidden, 4)), [7, "batch", width], [7, "batch", 4])


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {"resnet": resnet, "mobilenet": mobilenet, "tagger": tagger}


class Samples(CalibrationDataReader):
    """A few random images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        shape = (2, 3, SIZE, SIZE)
        self.left: Iterator[Any] = iter([{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(3)])

    def get_next(self) -> Any:
        return next(self.left, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The networks as files."""
    where = tmp_path_factory.mktemp("networks")
    for name, build in NETWORKS.items():
        onnx.save(build(), where / f"{name}.onnx")
    return where


def check(path: Path, batch: int = 2) -> Counter[str]:
    """Hold a model to onnxruntime; which ops of com.microsoft it has."""
    found = verify(path, dims={"batch": batch})
    assert all(d.matches or d.relative_norm < STEPS for d in found.differences.values()), found.differences
    return Counter(node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft")


IN_RESNET = {"QLinearAdd", "QLinearGlobalAveragePool", "QGemm"}
IN_MOBILENET = {
    *IN_RESNET,
    "QLinearMul",
    "QLinearConcat",
    "QLinearSigmoid",
    "QLinearLeakyRelu",
    "QLinearAveragePool",
    "QLinearSoftmax",
}


@pytest.mark.parametrize("name, expected", [("resnet", IN_RESNET), ("mobilenet", IN_MOBILENET)])
@pytest.mark.parametrize("type", [QuantType.QUInt8, QuantType.QInt8], ids=lambda type: type.name)
def test_operators(folder: Path, tmp_path: Path, name: str, expected: set[str], type: QuantType) -> None:
    path = tmp_path / "quantized.onnx"
    how = {"quant_format": QuantFormat.QOperator, "activation_type": type, "weight_type": QuantType.QInt8}
    quantize_static(str(folder / f"{name}.onnx"), str(path), Samples(), per_channel=type is QuantType.QInt8, **how)
    assert set(check(path, batch=3)) == expected


@pytest.mark.parametrize("name", ["resnet", "mobilenet"])
@pytest.mark.parametrize("type", [QuantType.QUInt8, QuantType.QInt16], ids=lambda type: type.name)
def test_pairs(folder: Path, tmp_path: Path, name: str, type: QuantType) -> None:
    """16 bits with onnxruntime's own pairs, as for opsets before 21."""
    path, own = tmp_path / "quantized.onnx", type is QuantType.QInt16
    how = {"quant_format": QuantFormat.QDQ, "activation_type": type, "weight_type": QuantType.QInt8}
    options = {"UseQDQContribOps": own, "ActivationSymmetric": own}
    quantize_static(str(folder / f"{name}.onnx"), str(path), Samples(), extra_options=options, **how)
    assert set(check(path, batch=1)) == ({"QuantizeLinear", "DequantizeLinear"} if own else set())


@pytest.mark.parametrize("name", list(NETWORKS))
def test_dynamic(folder: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "quantized.onnx"
    quantize_dynamic(str(folder / f"{name}.onnx"), str(path), weight_type=QuantType.QUInt8)
    assert set(check(path)) == ({"DynamicQuantizeLSTM"} if name == "tagger" else set())


@pytest.mark.parametrize("name", ["resnet", "mobilenet"])
def test_float16(folder: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(folder / f"{name}.onnx"), keep_io_types=True), path)
    check(path)


@pytest.mark.parametrize("name, expected", [("resnet", {"QLinearConv", "NhwcMaxPool"}), ("mobilenet", {"QLinearConv"})])
def test_with_channels_last(folder: Path, tmp_path: Path, name: str, expected: set[str]) -> None:
    """What onnxruntime saves after all its graph optimizations of a quantized model."""
    path, saved = tmp_path / "quantized.onnx", tmp_path / "saved.onnx"
    how = {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(folder / f"{name}.onnx"), str(path), Samples(), **how)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(saved)
    onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    model = onnx.load(saved)
    assert expected <= {node.op_type for node in model.graph.node if node.domain == "com.microsoft"}
    x = np.random.default_rng(2).normal(size=(2, 3, SIZE, SIZE)).astype(np.float32)
    (found,) = evaluate(import_onnx(model, dims={"batch": 2}), {"x": x}).values()
    (wanted,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert np.linalg.norm(found - wanted) <= STEPS * np.linalg.norm(wanted)

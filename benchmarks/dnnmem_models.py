# SPDX-License-Identifier: Apache-2.0
"""The models of DNNMem's evaluation that no export here has: LSTM and BERT as ONNX files without weights.

LSTM: two layers, hidden and input sizes of 5,120. The length of its sequences is not stated: with 100 steps the input, the weights and
the outputs of both layers are the 2.3 GB that the paper's shape inference has. BERT base as its authors wrote it: attention spelled out,
GELU by erf and layer normalization op by op, dropout of 0.1.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import onnx
from onnx import TensorProto, helper

STEPS = 100
SIZE = 5120


class Graph:
    """A graph being written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.made = 0

    def weight(self, *dims: int) -> str:
        """A stored tensor whose data is absent."""
        name = f"w{len(self.stored)}"
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent.weights")
        self.stored.append(tensor)
        return name

    def number(self, value: float) -> str:
        return self._constant(helper.make_tensor("c", TensorProto.FLOAT, [], [value]))

    def dims(self, *values: int) -> str:
        return self._constant(helper.make_tensor("c", TensorProto.INT64, [len(values)], values))

    def _constant(self, tensor: onnx.TensorProto) -> str:
        return self.op("Constant", value=tensor)

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """The first output of a new node."""
        names = [f"v{self.made + at}" for at in range(outputs)]
        self.made += outputs
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}_{self.made}", **attributes))
        return names[0]

    def linear(self, x: str, inner: int, outer: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def write(self, path: Path, element: int, dims: list[object], out: str) -> Path:
        given = helper.make_tensor_value_info("x", element, dims)
        result = helper.make_tensor_value_info(out, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, path.stem, [given], [result], self.stored)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
        return path


def lstm(path: Path) -> Path:
    """Two layers, over [steps, batch, size]."""
    graph = Graph()
    x = "x"
    for _ in range(2):
        weights = [graph.weight(1, 4 * SIZE, SIZE), graph.weight(1, 4 * SIZE, SIZE), graph.weight(1, 8 * SIZE)]
        x = graph.op("Squeeze", graph.op("LSTM", x, *weights, hidden_size=SIZE), graph.dims(1))
    return graph.write(path, TensorProto.FLOAT, [STEPS, "batch", SIZE], x)


def bert(path: Path, length: int) -> Path:
    """Twelve layers of 768, and a classifier of two."""
    graph, width, heads = Graph(), 768, 12
    words = graph.op("Gather", graph.weight(30522, width), "x")
    x = graph.op("Add", words, graph.weight(length, width))
    x = _dropout(graph, _norm(graph, x, width))
    for _ in range(12):
        query, key, value = (_split(graph, graph.linear(x, width, width), length, heads) for _ in range(3))
        turned = graph.op("Transpose", key, perm=[0, 1, 3, 2])
        scores = graph.op("Div", graph.op("MatMul", query, turned), graph.number(sqrt(width // heads)))
        kept = _dropout(graph, graph.op("Softmax", scores, axis=-1))
        joined = graph.op("Transpose", graph.op("MatMul", kept, value), perm=[0, 2, 1, 3])
        joined = graph.op("Reshape", joined, graph.dims(0, length, width))
        x = _norm(graph, graph.op("Add", _dropout(graph, graph.linear(joined, width, width)), x), width)
        inner = _gelu(graph, graph.linear(x, width, 4 * width))
        x = _norm(graph, graph.op("Add", _dropout(graph, graph.linear(inner, 4 * width, width)), x), width)
    first = graph.op(
        "Gather", x, graph.op("Constant", value=helper.make_tensor("c", TensorProto.INT64, [], [0])), axis=1
    )
    pooled = _dropout(graph, graph.op("Tanh", graph.linear(first, width, width)))
    return graph.write(path, TensorProto.INT64, ["batch", length], graph.linear(pooled, width, 2))


def _split(graph: Graph, x: str, length: int, heads: int) -> str:
    return graph.op("Transpose", graph.op("Reshape", x, graph.dims(0, length, heads, -1)), perm=[0, 2, 1, 3])


def _norm(graph: Graph, x: str, width: int) -> str:
    """(x - mean) / sqrt(variance + epsilon), scaled and moved; the difference is made twice, as in the authors' code."""
    mean = graph.op("ReduceMean", x, graph.dims(-1))
    square = graph.op("Pow", graph.op("Sub", x, mean), graph.number(2.0))
    deviation = graph.op("Sqrt", graph.op("Add", graph.op("ReduceMean", square, graph.dims(-1)), graph.number(1e-12)))
    scaled = graph.op("Mul", graph.weight(width), graph.op("Div", graph.op("Sub", x, mean), deviation))
    return graph.op("Add", scaled, graph.weight(width))


def _dropout(graph: Graph, x: str) -> str:
    return graph.op("Dropout", x, graph.number(0.1))


def _gelu(graph: Graph, x: str) -> str:
    """x * 0.5 * (1 + erf(x / sqrt(2))), op by op."""
    half = graph.op("Mul", x, graph.number(0.5))
    plus = graph.op("Add", graph.op("Erf", graph.op("Div", x, graph.number(sqrt(2)))), graph.number(1.0))
    return graph.op("Mul", half, plus)


def resized(source: Path, path: Path, size: int) -> Path:
    """A convolutional network for images of another size."""
    model = onnx.load(str(source), load_external_data=False)
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    onnx.save(model, str(path))
    return path

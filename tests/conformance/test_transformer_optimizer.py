# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's transformer optimizer writes for small encoders and decoders, also quantized and in half precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

from memc.measure.references import saturates_int8
from memc.measure.verification import verify

WORDS, POSITIONS, HIDDEN, HEADS, LAYERS = 50, 12, 16, 2, 2
WIDTH = HIDDEN // HEADS
SIZES = {"batch": 2, "tokens": 7}
NOISE = 3e-2
"""The relative error of an output as a whole that rounding activations to 8 bits accounts for."""


class Graph:
    """Nodes of a model, in sequence, and their constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        names = [f"t{len(self.nodes)}.{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=f"n{len(self.nodes)}", **attrs))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float = 0.3, offset: float = 0.0) -> str:
        return self.constant(self.rng.normal(size=shape) * scale + offset, np.float32)

    def norm(self, x: str) -> str:
        scale, bias = self.weight(HIDDEN, scale=0.1, offset=1.0), self.weight(HIDDEN, scale=0.1)
        return str(self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5))

    def model(self, inputs: list[str], y: str, width: int) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(n, TensorProto.INT64, list(SIZES)) for n in inputs]
        result = helper.make_tensor_value_info(y, TensorProto.FLOAT, [*SIZES, width])
        graph = helper.make_graph(self.nodes, "transformer", infos, [result], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def linear(g: Graph, x: str, into: int, out: int) -> str:
    return str(g.op("Add", g.weight(out), g.op("MatMul", x, g.weight(into, out))))


def position_ids(g: Graph, ids: str) -> str:
    """The first of a stored row of positions, as many as there are tokens."""
    tokens = g.op("Unsqueeze", g.op("Gather", g.op("Shape", ids), g.constant(1), axis=0), g.constant([0]))
    row = g.constant([list(range(POSITIONS))])
    return str(g.op("Slice", row, g.constant([0]), tokens, g.constant([1]), g.constant([1])))


def encoder() -> onnx.ModelProto:
    """As exporters write BERT."""
    g = Graph()
    words = g.op("Gather", g.weight(WORDS, HIDDEN), "input_ids")
    kinds = g.op("Gather", g.weight(2, HIDDEN), "segment_ids")
    places = g.op("Gather", g.weight(POSITIONS, HIDDEN), position_ids(g, "input_ids"))
    x = g.norm(g.op("Add", g.op("Add", words, kinds), places))
    mask = g.op("Unsqueeze", g.op("Unsqueeze", "attention_mask", g.constant([1])), g.constant([2]))
    kept = g.op("Sub", g.constant(1.0, np.float32), g.op("Cast", mask, to=TensorProto.FLOAT))
    mask = g.op("Mul", kept, g.constant(-10000.0, np.float32))
    for _ in range(LAYERS):
        apart = [g.op("Reshape", linear(g, x, HIDDEN, HIDDEN), g.constant([0, 0, HEADS, WIDTH])) for _ in range(3)]
        q, k, v = (
            g.op("Transpose", part, perm=perm) for part, perm in zip(apart, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        )
        scores = g.op("Div", g.op("MatMul", q, k), g.constant(WIDTH**0.5, np.float32))
        weights = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
        found = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        found = g.op("Reshape", found, g.constant([0, 0, HIDDEN]))
        x = g.norm(g.op("Add", linear(g, found, HIDDEN, HIDDEN), x))
        y = linear(g, x, HIDDEN, 2 * HIDDEN)
        half = g.op("Add", g.op("Erf", g.op("Div", y, g.constant(2**0.5, np.float32))), g.constant(1.0, np.float32))
        y = g.op("Mul", g.op("Mul", y, half), g.constant(0.5, np.float32))
        x = g.norm(g.op("Add", linear(g, y, 2 * HIDDEN, HIDDEN), x))
    return g.model(["input_ids", "segment_ids", "attention_mask"], x, HIDDEN)


def gemm(g: Graph, x: str, into: int, out: int) -> str:
    """A product of all tokens as one matrix, as exporters write GPT-2's."""
    flat = g.op("Gemm", g.op("Reshape", x, g.constant([-1, into])), g.weight(into, out), g.weight(out))
    return str(g.op("Reshape", flat, g.constant([-1, SIZES["tokens"], out])))


def causal(g: Graph, scores: str) -> str:
    """The rows and columns of a stored triangle that belong to the scores."""
    triangle = g.constant(np.tril(np.ones((1, 1, POSITIONS, POSITIONS))), np.bool_)

    def extent(axis: int) -> str:
        one = g.op("Slice", g.op("Shape", scores), g.constant([axis]), g.constant([axis + 1]), g.constant([0]))
        return str(g.op("Squeeze", one, g.constant([0])))

    keys, queries = extent(3), extent(2)
    start = g.op("Unsqueeze", g.op("Sub", keys, queries), g.constant([0]))
    stop = g.op("Unsqueeze", keys, g.constant([0]))
    rows = g.op("Slice", triangle, start, stop, g.constant([2]), g.constant([1]))
    return str(g.op("Slice", rows, g.constant([0]), stop, g.constant([3]), g.constant([1])))


def decoder() -> onnx.ModelProto:
    """As exporters write GPT-2."""
    g = Graph()
    table = g.weight(WORDS, HIDDEN)
    places = g.op("Gather", g.weight(POSITIONS, HIDDEN), position_ids(g, "input_ids"))
    x = g.op("Add", g.op("Gather", table, "input_ids"), places)
    for _ in range(LAYERS):
        parts = g.op("Split", gemm(g, g.norm(x), HIDDEN, 3 * HIDDEN), g.constant([HIDDEN] * 3), outputs=3, axis=2)
        apart = [g.op("Reshape", part, g.constant([0, 0, HEADS, WIDTH])) for part in parts]
        q, k, v = (
            g.op("Transpose", part, perm=perm) for part, perm in zip(apart, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        )
        scores = g.op("Div", g.op("MatMul", q, k), g.constant(WIDTH**0.5, np.float32))
        weights = g.op("Softmax", g.op("Where", causal(g, scores), scores, g.constant(-10000.0, np.float32)), axis=-1)
        found = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = g.op("Add", gemm(g, g.op("Reshape", found, g.constant([0, 0, HIDDEN])), HIDDEN, HIDDEN), x)
        y = gemm(g, g.norm(x), HIDDEN, 2 * HIDDEN)
        cubed = g.op("Mul", g.op("Pow", y, g.constant(3.0, np.float32)), g.constant(0.044714998453855515, np.float32))
        inner = g.op("Mul", g.op("Add", y, cubed), g.constant(0.7978845834732056, np.float32))
        outer = g.op("Add", g.op("Tanh", inner), g.constant(1.0, np.float32))
        y = g.op("Mul", g.op("Mul", y, g.constant(0.5, np.float32)), outer)
        x = g.op("Add", x, gemm(g, y, 2 * HIDDEN, HIDDEN))
    return g.model(["input_ids"], g.op("MatMul", g.norm(x), g.weight(HIDDEN, WORDS)), WORDS)


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], set[str]]] = {
    "bert": (encoder, {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "BiasGelu"}),
    "gpt2": (decoder, {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "FastGelu"}),
}


def optimized(kind: str, folder: Path) -> Any:
    """The model as the optimizer leaves it. Shapes are left open: their inference would need another package."""
    path = folder / f"{kind}.onnx"
    onnx.save(MODELS[kind][0](), path)
    options = FusionOptions(kind)
    options.enable_shape_inference = False
    return optimize_model(str(path), kind, HEADS, HIDDEN, optimization_options=options, opt_level=0)


def ops(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node if node.domain == "com.microsoft"}


@pytest.mark.parametrize("kind", list(MODELS))
def test_optimized(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    optimized(kind, tmp_path).save_model_to_file(str(path))
    assert ops(path) == MODELS[kind][1]
    found = verify(path, dims=SIZES)
    assert found.passed, found.differences


@pytest.mark.parametrize("kind", list(MODELS))
def test_half_precision(kind: str, tmp_path: Path) -> None:
    whole, path = tmp_path / "optimized.onnx", tmp_path / "half.onnx"
    optimized(kind, tmp_path).save_model_to_file(str(whole))
    onnx.save(convert_float_to_float16(onnx.load(whole), disable_shape_infer=True), path)
    assert ops(path) == MODELS[kind][1]
    found = verify(path, dims=SIZES)
    assert found.passed, found.differences


@pytest.mark.parametrize("kind", list(MODELS))
def test_dynamically_quantized(kind: str, tmp_path: Path) -> None:
    whole, path = tmp_path / "optimized.onnx", tmp_path / "quantized.onnx"
    optimized(kind, tmp_path).save_model_to_file(str(whole))
    quantize_dynamic(str(whole), str(path), extra_options={"DefaultTensorType": TensorProto.FLOAT})
    # The quantizer leaves an embedding whose sum is an output, too, as it is.
    renamed = {
        "Attention": "QAttention",
        **({"EmbedLayerNormalization": "QEmbedLayerNormalization"} if kind == "bert" else {}),
    }
    assert ops(path) == {renamed.get(name, name) for name in MODELS[kind][1]}
    found = verify(path, dims=SIZES)
    if saturates_int8():
        pytest.skip("onnxruntime's products of u8 and s8 saturate on this processor")
    assert all(d.matches or d.relative_norm < NOISE for d in found.differences.values()), found.differences

# SPDX-License-Identifier: Apache-2.0
"""Groups that library kernels take: where they end."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager

RANDOM = np.random.default_rng(4)
WEIGHTS = {
    "w": RANDOM.standard_normal((16, 16)).astype(np.float32) / 4,
    "b": RANDOM.standard_normal(16).astype(np.float32),
    "filter": RANDOM.standard_normal((4, 3, 3)).astype(np.float32),
    "k": np.array([3]),
}
PRODUCERS = {
    "matmul": [("MatMul", ["x", "w"], ["a"], {})],
    "gemm": [("Gemm", ["flat", "w", "b"], ["a"], {})],
    "bias": [("MatMul", ["x", "w"], ["m"], {}), ("Add", ["m", "b"], ["a"], {})],
    "relu": [("MatMul", ["x", "w"], ["m"], {}), ("Relu", ["m"], ["a"], {})],
    "conv": [("Conv", ["x", "filter"], ["a"], {})],
}


@pytest.mark.parametrize("used", [("values", "at"), ("values",), ("at",)])
@pytest.mark.parametrize("producer", list(PRODUCERS))
def test_a_reader_with_two_results_ends_the_group(producer: str, used: tuple[str, ...]) -> None:
    """As the last layer of a classifier, or of a mixture of experts, with the best of its scores."""
    nodes = [helper.make_node("Reshape", ["x", "rows"], ["flat"])] if producer == "gemm" else []
    nodes += [helper.make_node(op, inputs, outputs, **attrs) for op, inputs, outputs, attrs in PRODUCERS[producer]]
    nodes += [helper.make_node("TopK", ["a", "k"], ["values", "at"])]
    kinds = {"values": TensorProto.FLOAT, "at": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "best",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 16])],
        [helper.make_tensor_value_info(name, kinds[name], None) for name in used],
        [numpy_helper.from_array(a, name) for name, a in {**WEIGHTS, "rows": np.array([6, 16])}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = RANDOM.standard_normal((2, 3, 16)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = memc.compile(model).load().run_numpy({"x": x})
    for output, expected in zip(session.get_outputs(), session.run(None, {"x": x})):
        np.testing.assert_allclose(found[output.name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_the_group_before_two_results_stays(target: str) -> None:
    module = parse("""
func @main(%x: f32[8,64] {role = input}, %w: f32[64,64] {role = weight}, %b: f32[64] {role = weight}) -> (f32[8,2], i64[8,2]) {
  %m = matmul(%x, %w) {transpose_a = false, transpose_b = false} : f32[8,64]
  %a = add(%m, %b) : f32[8,64]
  %r = relu(%a) : f32[8,64]
  %v, %i = top_k(%r) {axis = 1, k = 2, largest = true} : f32[8,2], i64[8,2]
  return %v, %i
}
""")
    PassManager.parse(f"fuse-library{{target={target}}}").run(module)
    fused, last = module.main.ops
    assert fused.region is not None and [op.name for op in fused.region.ops] == ["matmul", "add", "relu"]
    assert fused.plan.library_kernel is not None and last.name == "top_k"

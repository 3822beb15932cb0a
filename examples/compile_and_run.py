# SPDX-License-Identifier: Apache-2.0
"""Compiles a small ONNX model, runs it, and compares the results with onnx's own reference evaluator.

    python examples/compile_and_run.py [FOLDER]

Writes FOLDER/model.onnx and FOLDER/model.memc (the current folder by default).
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import memc


def build_model() -> onnx.ModelProto:
    """A residual block, a global pool and a classifier: x f32[batch,3,32,32] to y f32[batch,10]."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((0.2 * random.standard_normal(shape)).astype(np.float32), name)

    padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", **padded),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", **padded),
        helper.make_node("Add", ["c2", "r1"], ["sum"], name="add"),
        helper.make_node("Relu", ["sum"], ["r2"], name="relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["pooled"], name="pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
        helper.make_node("MatMul", ["flat", "w3"], ["scores"], name="classifier"),
        helper.make_node("Softmax", ["scores"], ["y"], name="softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [weight("w1", 8, 3, 3, 3), weight("w2", 8, 8, 3, 3), weight("w3", 8, 10)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(build_model(), folder / "model.onnx")

    compilation = memc.compile(folder / "model.onnx", folder / "model.memc", dims={"batch": 2})
    report = compilation.report
    print(f"unoptimized {report.unoptimized_bytes:,} bytes, arena {report.arena_bytes:,} bytes")
    print(f"lower bound {report.lower_bound_bytes:,} bytes, gap {report.gap_percent:.2f} %")

    executable = compilation.load()
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32)
    y = executable(x)["y"]

    [expected] = ReferenceEvaluator(str(folder / "model.onnx")).run(None, {"x": x})
    matches = np.allclose(y, expected, rtol=1e-3, atol=1e-5)
    print(f"results {'match' if matches else 'differ'}, largest difference {np.abs(y - expected).max():.1e}")
    return 0 if matches else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))

# SPDX-License-Identifier: Apache-2.0
"""GFLOP/s of the CPU library kernels beside onnxruntime's, on shapes of ResNet-50, MobileNet and BERT-base.

    python benchmarks/cpu_kernels.py [--threads 2] [--workspace 524288]

Prints one line per shape: milliseconds (the least of 25 runs) and GFLOP/s of both, and the ratio of the times.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CONVS = [  # channels, pixels a side, out channels, kernel, stride, groups
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 3, 1, 1),
    (128, 28, 128, 3, 1, 1),
    (256, 14, 256, 3, 1, 1),
    (512, 7, 512, 3, 1, 1),
    (64, 56, 256, 1, 1, 1),
    (256, 56, 512, 1, 2, 1),
    (1024, 14, 256, 1, 1, 1),
    (512, 7, 2048, 1, 1, 1),
    (96, 112, 96, 3, 2, 96),
    (144, 56, 144, 3, 1, 144),
    (960, 7, 960, 3, 1, 960),
]
MATMULS = [  # a, b
    ((128, 768), (768, 768)),
    ((128, 768), (768, 3072)),
    ((128, 3072), (3072, 768)),
    ((12, 128, 64), (12, 64, 128)),
    ((1, 2048), (2048, 1000)),
]


def least_seconds(run: Callable[[], Any], runs: int = 25) -> float:
    run()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def reference(node: Any, shapes: dict[str, tuple[int, ...]], weights: dict[str, Array], threads: int) -> Any:
    """An onnxruntime session of one node."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "one", inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def report(name: str, flops: int, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    mine, other = least_seconds(ours), least_seconds(theirs)
    print(
        f"{name:40} memc {mine * 1e3:8.3f} ms {flops / mine / 1e9:6.0f} GFLOP/s   "
        f"onnxruntime {other * 1e3:8.3f} ms {flops / other / 1e9:6.0f} GFLOP/s   ratio {mine / other:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workspace", type=int, default=512 * 1024, help="bytes for conv2d")
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)

    import tvm  # noqa: F401  (its thread pool)
    import tvm_ffi
    from onnx import helper

    from memc import native

    native.load()
    tensor = tvm_ffi.from_dlpack
    random = np.random.default_rng(0)
    scratch = tensor(np.zeros(options.workspace, np.uint8))
    for c, side, m, k, stride, group in CONVS:
        x = random.standard_normal((1, c, side, side), np.float32)
        w = random.standard_normal((m, c // group, k, k), np.float32)
        pad = k // 2
        node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride] * 2, pads=[pad] * 4, group=group)
        session = reference(node, {"x": x.shape}, {"w": w}, options.threads)
        y = np.zeros_like(session.run(None, {"x": x})[0])
        depthwise = group == c
        function = tvm_ffi.get_global_func("memc.cpu.depthwise_conv2d" if depthwise else "memc.cpu.conv2d")
        arguments = [*map(tensor, (x, w, y)), *([] if depthwise else [scratch])]
        scalars = (2, group, 0, stride, stride, pad, pad, 1, 1)
        report(
            f"conv {c}x{side}x{side} -> {m}, {k}x{k} / {stride}, {group} groups",
            2 * y.size * w[0].size,
            lambda: function(*arguments, *scalars),  # noqa: B023  (called at once)
            lambda: session.run(None, {"x": x}),  # noqa: B023
        )
    matmul = tvm_ffi.get_global_func("memc.cpu.matmul")
    for a_shape, b_shape in MATMULS:
        a, b = random.standard_normal(a_shape, np.float32), random.standard_normal(b_shape, np.float32)
        constant = len(b_shape) == 2
        shapes = {"a": a.shape} if constant else {"a": a.shape, "b": b.shape}
        node = helper.make_node("MatMul", ["a", "b"], ["y"])
        session = reference(node, shapes, {"b": b} if constant else {}, options.threads)
        feed = {"a": a} if constant else {"a": a, "b": b}
        y = np.zeros_like(session.run(None, feed)[0])
        operands = [*map(tensor, (a, b, y))]
        report(
            f"matmul {a_shape} x {b_shape}",
            2 * y.size * a_shape[-1],
            lambda: matmul(*operands, 2, 0, 0, 0),  # noqa: B023
            lambda: session.run(None, feed),  # noqa: B023
        )


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Tensors without elements in every family of ops: the result of onnx's reference or onnxruntime."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import memc


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def none(*shape: int) -> np.ndarray:
    """No indices."""
    return np.zeros(shape, np.int64)


# Op, attributes, inputs (constants in a second list), outputs.
CASES = [
    *[(op, {}, [ones(*shape)], [], 1) for op in ("Relu", "Exp", "Softmax", "LogSoftmax") for shape in ((0, 3), (2, 0))],
    *[(op, {}, [ones(0, 3), ones(1, 3)], [], 1) for op in ("Add", "Div", "Pow", "Max", "Less")],
    *[("Cast", {"to": TensorProto.INT32}, [ones(0, 3)], [], 1), ("Transpose", {}, [ones(0, 3)], [], 1)],
    *[
        (op, {"keepdims": keep}, [ones(2, 0, 3)], [ints(axis)], 1)
        for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "ReduceLogSumExp")
        for keep in (0, 1)
        for axis in (1, 2)
    ],
    ("ArgMax", {"axis": 1}, [ones(0, 3)], [], 1),
    *[
        ("MatMul", {}, [ones(*a), ones(*b)], [], 1)
        for a, b in [
            ((0, 3), (3, 4)),
            ((2, 0), (0, 4)),
            ((2, 3), (3, 0)),
            ((0, 2, 3), (3, 4)),
            ((0,), (0,)),
            ((2, 0), (0,)),
        ]
    ],
    ("Gemm", {"beta": 3.0}, [ones(2, 0), ones(0, 4), ones(4)], [], 1),
    ("Conv", {}, [ones(0, 3, 8, 8), ones(4, 3, 3, 3)], [], 1),
    ("Conv", {"group": 3}, [ones(0, 3, 8, 8), ones(3, 1, 3, 3)], [], 1),
    ("ConvTranspose", {}, [ones(0, 3, 8, 8), ones(3, 4, 3, 3)], [], 1),
    ("MaxPool", {"kernel_shape": [2, 2]}, [ones(0, 3, 8, 8)], [], 1),
    ("AveragePool", {"kernel_shape": [2, 2]}, [ones(1, 0, 8, 8)], [], 1),
    ("GlobalAveragePool", {}, [ones(0, 3, 8, 8)], [], 1),
    ("BatchNormalization", {}, [ones(0, 3, 4)], [ones(3)] * 4, 1),
    ("LayerNormalization", {}, [ones(0, 3)], [ones(3)], 1),
    ("InstanceNormalization", {}, [ones(0, 3, 4)], [ones(3)] * 2, 1),
    ("Concat", {"axis": 0}, [ones(0, 3), ones(2, 3)], [], 1),
    ("Concat", {"axis": 1}, [ones(0, 3), ones(0, 2)], [], 1),
    ("Split", {"axis": 0}, [ones(3, 2)], [ints(3, 0)], 2),
    ("Slice", {}, [ones(3, 4)], [ints(2), ints(2), ints(0)], 1),
    ("Gather", {}, [ones(3, 4), none(0)], [], 1),
    ("Gather", {}, [ones(3, 0), ints(1, 2)], [], 1),
    ("GatherElements", {}, [ones(3, 4), none(0, 4)], [], 1),
    ("GatherND", {}, [ones(3, 4), none(0, 2)], [], 1),
    ("ScatterND", {}, [ones(3, 4), none(0, 1), ones(0, 4)], [], 1),
    ("Reshape", {"allowzero": 1}, [ones(0, 4)], [ints(4, 0)], 1),
    ("Expand", {}, [ones(1, 4)], [ints(0, 4)], 1),
    ("Tile", {}, [ones(2, 4)], [ints(0, 1)], 1),
    ("Pad", {}, [ones(0, 4)], [ints(1, 0, 1, 0)], 1),
    ("CumSum", {}, [ones(0, 4)], [np.array(0)], 1),
    ("CumSum", {}, [ones(0, 4000)], [np.array(1)], 1),
    ("TopK", {}, [ones(2, 4)], [ints(0)], 2),
    ("Where", {}, [np.zeros((0, 1), bool), ones(1, 3), ones(0, 3)], [], 1),
    ("Einsum", {"equation": "ij,jk->ik"}, [ones(2, 0), ones(0, 3)], [], 1),
    ("OneHot", {}, [none(0)], [np.array(4), ones(2)], 1),
    ("DepthToSpace", {"blocksize": 2}, [ones(0, 4, 2, 2)], [], 1),
    ("QuantizeLinear", {}, [ones(0, 4)], [np.float32(0.5).reshape(()), np.uint8(0).reshape(())], 1),
    ("GridSample", {}, [ones(1, 1, 4, 4), ones(1, 0, 2, 2)], [], 1),
    ("Trilu", {}, [ones(2, 0, 3)], [], 1),
    ("Det", {}, [ones(0, 3, 3)], [], 1),
]


def expected(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Of the reference, or of onnxruntime where the reference has no result."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of means over nothing.
            return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception:  # Whatever numpy raises.
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{'-'.join(str(a.shape) for a in case[2])}")
def test_results_without_elements(case: tuple) -> None:
    op, attributes, inputs, constants, outputs = case
    names = [f"i{k}" for k in range(len(inputs) + len(constants))]
    results = [f"o{k}" for k in range(outputs)]
    feeds = dict(zip(names, inputs))
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in zip(names[len(inputs) :], constants)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(model)
    for output in inferred.graph.output:
        output.type.tensor_type.ClearField("shape")
    wanted = expected(inferred, feeds)
    for level in (0, 2):
        found = memc.compile(model, opt_level=level).load().run_numpy(feeds)
        for name, array in zip(results, wanted):
            np.testing.assert_array_equal(found[name], array, strict=True)

# SPDX-License-Identifier: Apache-2.0
"""mixed-precision on every op that it makes half, one behind a convolution: each stays valid IR and near f32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.ir.core import Array
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.passes.manager import PassManager
from memc.passes.precision import precision_rules as rules

TOLERANCE = {"f16": 5e-3, "bf16": 4e-2}
"""Norm-relative."""
SHAPE = (2, 6, 7, 7)
MADE_BY_PASSES = {"copy", "dropout", "batch_norm_training", "hold"}
"""Ops that no ONNX op of inference is imported as."""
SPLIT = {"batch_norm", "reduce_mean"}
"""Ops that the importer may write as several."""

# By the op of memc: the ONNX op on `h` [2,6,7,7], further operands and attributes.
POOL = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
CHANNEL = np.linspace(0.5, 1.5, 6, dtype=np.float32)
OPS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "softmax": ("Softmax", [], {"axis": 1}),
    "layer_norm": ("LayerNormalization", [CHANNEL[:1].repeat(7)], {"axis": -1}),
    "batch_norm": ("BatchNormalization", [CHANNEL, CHANNEL, CHANNEL - 1, CHANNEL], {}),
    "reduce_mean": ("ReduceMean", [], {"axes": [2, 3]}),
    "lrn": ("LRN", [], {"size": 3}),
    "add": ("Add", [CHANNEL.reshape(6, 1, 1)], {}),
    "sub": ("Sub", [CHANNEL.reshape(6, 1, 1)], {}),
    "mul": ("Mul", [CHANNEL.reshape(6, 1, 1)], {}),
    "div": ("Div", [CHANNEL.reshape(6, 1, 1)], {}),
    "neg": ("Neg", [], {}),
    "abs": ("Abs", [], {}),
    "min": ("Min", [CHANNEL.reshape(6, 1, 1)], {}),
    "max": ("Max", [CHANNEL.reshape(6, 1, 1)], {}),
    "select": ("Where", ["mask", "h", CHANNEL.reshape(6, 1, 1)], {}),
    "relu": ("Relu", [], {}),
    "leaky_relu": ("LeakyRelu", [], {"alpha": 0.1}),
    "elu": ("Elu", [], {}),
    "gelu": ("Gelu", [], {}),
    "silu": ("Swish", [], {}),
    "sigmoid": ("Sigmoid", [], {}),
    "hard_sigmoid": ("HardSigmoid", [], {}),
    "softplus": ("Softplus", [], {}),
    "clip": ("Clip", [np.float32(-0.5), np.float32(0.5)], {}),
    "tanh": ("Tanh", [], {}),
    "erf": ("Erf", [], {}),
    "reshape": ("Reshape", [np.array([2, 3, -1])], {}),
    "transpose": ("Transpose", [], {"perm": [0, 2, 3, 1]}),
    "slice": ("Slice", [np.array([1]), np.array([6]), np.array([2]), np.array([2])], {}),
    "concat": ("Concat", ["h"], {"axis": 1}),
    "pad": ("Pad", [np.array([0, 0, 1, 2, 0, 0, 2, 1])], {"mode": "reflect"}),
    "broadcast": ("Expand", [np.array([3, 1, 1, 1, 1])], {}),
    "resize_nearest": ("Resize", ["", np.float32([1, 1, 2, 2])], {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
    "gather": ("Gather", [np.array([5, 0, 3])], {"axis": 1}),
    "gather_elements": ("GatherElements", [np.zeros(SHAPE, np.int64)], {"axis": 2}),
    "gather_nd": ("GatherND", [np.array([[1, 5], [0, 2]])], {}),
    "max_pool": ("MaxPool", [], POOL),
    "avg_pool": ("AveragePool", [], POOL),
    "reduce_max": ("ReduceMax", [], {"axes": [1]}),
    "reduce_min": ("ReduceMin", [], {"axes": [2, 3], "keepdims": 0}),
}  # fmt: skip
OPSET = {"silu": 24, "reduce_mean": 13, "reduce_max": 13, "reduce_min": 13, "gelu": 20}


def model(name: str) -> onnx.ModelProto:
    """x -> convolution -> the op -> leaky ReLU."""
    kind, operands, attrs = OPS[name]
    rng = np.random.default_rng(5)
    data: dict[str, Array] = {
        "w": (0.4 * rng.normal(size=(6, 4, 3, 3))).astype(np.float32),
        "mask": rng.random(SHAPE) < 0.5,
    }
    names = [] if kind == "Where" else ["h"]
    for operand in operands:
        if not isinstance(operand, str):
            data[f"d{len(data)}"] = np.asarray(operand)
        names.append(operand if isinstance(operand, str) else f"d{len(data) - 1}")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1] * 4),
        helper.make_node(kind, names, ["m"], **attrs),
        helper.make_node("LeakyRelu", ["m"], ["y"], alpha=0.3),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 7, 7])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(a, n) for n, a in data.items() if n != "mask" or kind == "Where"]
    graph = helper.make_graph(nodes, name, [x], [y], weights)
    opset = OPSET.get(name, 17)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def test_every_op_that_may_be_half_is_tried() -> None:
    assert set(OPS) == (rules.FOLLOWERS | rules.NORMS) - MADE_BY_PASSES


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_an_op_behind_a_convolution(name: str, precision: str) -> None:
    source = model(name)
    feeds = {"x": np.random.default_rng(6).normal(size=(2, 4, 7, 7)).astype(np.float32)}
    module = memc.import_onnx(source)
    (expected,) = evaluate(module, feeds).values()
    PassManager.parse("recognize").run(module)
    assert name in SPLIT or name in {op.name for op in module.main.ops}, f"{OPS[name][0]} does not become {name}"
    for target in ({"target": "llvm"}, {"target": "cuda", "arch": "sm_90"}):
        done = memc.compile(source, precision=precision, plan_only=True, **target)
        (found,) = evaluate_in_arena(done.module, feeds).values()
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert found.shape == expected.shape and error <= TOLERANCE[precision]


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_a_largest_element_is_not_rounded_again(name: str) -> None:
    """It is one of the elements, so that in bf16, too, what follows it is half."""
    done = memc.compile(model(name), precision="bf16", pass_pipeline="mixed-precision{to=bf16}", plan_only=True)
    ops = done.module.main.ops
    (reduce,) = (op for op in ops if op.name == name)
    (cast,) = (op for op in ops if reduce.result in op.operands)
    (follower,) = (op for op in ops if op.name == "leaky_relu")
    assert cast.name == "cast" and str(follower.result.type).startswith("bf16") and follower.operands == [cast.result]


@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_compiled(name: str, precision: str) -> None:
    feeds = {"x": np.random.default_rng(6).normal(size=(2, 4, 7, 7)).astype(np.float32)}
    (expected,) = evaluate(memc.import_onnx(model(name)), feeds).values()
    (found,) = memc.compile(model(name), precision=precision).load().run_numpy(feeds).values()
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) <= TOLERANCE[precision]

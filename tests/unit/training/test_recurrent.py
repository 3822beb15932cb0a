# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN from ONNX to a training step: gradients of all weights and initial states against finite
differences in f64, and compiled steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memc
from memc.frontend.onnx import import_onnx
from memc.ir.evaluate import evaluate
from memc.passes.manager import PassManager
from memc.passes.training.build_gradient import BuildGradient

from ..ir.ops.gradients.conftest import finite_differences

STEPS, BATCH, INPUT, HIDDEN = 3, 2, 3, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(
    kind: str,
    direction: str = "forward",
    *,
    initial: bool = True,
    peepholes: bool = False,
    lengths: list[int] | None = None,
    dtype: type = np.float64,
    **attrs: Any,
) -> onnx.ModelProto:
    """y = every output and final state of one recurrent node, added up over all but batch and hidden axes."""
    rng = np.random.default_rng(17)
    ways = 2 if direction == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    shapes = {"W": (ways, rows, INPUT), "R": (ways, rows, HIDDEN), "B": (ways, 2 * rows)}
    layout = attrs.get("layout", 0)
    state = (BATCH, ways, HIDDEN) if layout else (ways, BATCH, HIDDEN)
    if initial:
        shapes["h0"] = state
        if kind == "LSTM":
            shapes["c0"] = state
    if peepholes:
        shapes["P"] = (ways, 3 * HIDDEN)
    weights = {name: rng.uniform(-1, 1, shape).astype(dtype) for name, shape in shapes.items()}
    stored = dict(weights)
    if lengths is not None:
        stored["lengths"] = np.array(lengths, np.int32)
    optional = [name if name in stored else "" for name in ("lengths", "h0", "c0", "P")]
    names = ["x", "W", "R", "B", *(optional if kind == "LSTM" else optional[:2])]
    outputs = ["Y", "last"] + (["cell"] if kind == "LSTM" else [])
    nodes = [helper.make_node(kind, names, outputs, direction=direction, hidden_size=HIDDEN, **attrs)]
    summed = []
    for name in outputs:
        # [batch, ways, hidden] of each, whatever the layout.
        moved = name
        if name == "Y":
            nodes.append(helper.make_node("ReduceSum", [name, "time"], [f"{name}.sum"], keepdims=0))
            moved = f"{name}.sum"
        if not layout:
            nodes.append(helper.make_node("Transpose", [moved], [f"{name}.batch"], perm=[1, 0, 2]))
            moved = f"{name}.batch"
        summed.append(moved)
    nodes.append(helper.make_node("Sum", summed, ["y"]))
    stored["time"] = np.array([1 if layout else 0])
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [helper.make_tensor_value_info("x", element, [BATCH, STEPS, INPUT] if layout else [STEPS, BATCH, INPUT])],
        [helper.make_tensor_value_info("y", element, [BATCH, ways, HIDDEN])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(18)
    found = {}
    for name, info in (("x", model.graph.input[0]), ("labels", model.graph.output[0])):
        tensor = info.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        found[name] = rng.uniform(-1, 1, shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return found


DIRECTIONS = ("forward", "reverse", "bidirectional")
CASES: dict[str, dict[str, Any]] = {
    **{f"LSTM {d}": {"kind": "LSTM", "direction": d} for d in DIRECTIONS},
    **{f"LSTM peepholes {d}": {"kind": "LSTM", "direction": d, "peepholes": True} for d in DIRECTIONS},
    "LSTM without initial states": {"kind": "LSTM", "initial": False},
    "LSTM coupled": {"kind": "LSTM", "input_forget": 1, "peepholes": True},
    "LSTM clipped": {"kind": "LSTM", "clip": 0.4},
    "LSTM batch first": {"kind": "LSTM", "direction": "bidirectional", "layout": 1},
    "LSTM lengths": {"kind": "LSTM", "direction": "bidirectional", "lengths": [3, 1]},
    "LSTM activations": {"kind": "LSTM", "activations": ["HardSigmoid", "Softsign", "ScaledTanh"]},
    **{
        f"GRU {d} reset {'after' if after else 'before'}": {"kind": "GRU", "direction": d, "linear_before_reset": after}
        for d in DIRECTIONS
        for after in (0, 1)
    },
    "GRU without initial state": {"kind": "GRU", "initial": False},
    "GRU lengths": {"kind": "GRU", "direction": "bidirectional", "lengths": [2, 3], "linear_before_reset": 1},
    **{f"RNN {d}": {"kind": "RNN", "direction": d} for d in DIRECTIONS},
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite_differences(case: str) -> None:
    model = recurrent(**CASES[case])
    module = import_onnx(model, trainable=True)
    BuildGradient(loss="mse", optimizer="none").apply(module)
    given = feeds(model)
    found = evaluate(module, given)
    trained = {name.removesuffix(".grad") for name in found} - {"loss"}
    assert trained == {t.name for t in model.graph.initializer if t.data_type == TensorProto.DOUBLE}
    params = {p.name: p for p in module.main.params}
    for name in sorted(trained):
        numbers = finite_differences(module, {**given, name: module.weights[name]}, params[name])
        scale = np.abs(numbers).max()
        np.testing.assert_allclose(found[f"{name}.grad"], numbers, rtol=0, atol=1e-6 * scale, err_msg=name)
        assert scale > 1e-3


@pytest.mark.parametrize(
    "case", ["LSTM peepholes bidirectional", "GRU bidirectional reset after", "GRU reverse reset before"]
)
def test_compiled_steps_learn_as_the_evaluation_does(case: str) -> None:
    model = recurrent(**CASES[case], dtype=np.float32)
    how = BuildGradient(loss="mse", optimizer="sgd", momentum=0.9, clip_norm=1.0)
    step = memc.compile(model, train=how).load()
    step.learning_rate = 0.1
    module = import_onnx(model, trainable=True)
    how.apply(module)
    given, state, losses = feeds(model), {}, []
    for _ in range(4):
        state = evaluate(module, {**given, "learning_rate": np.float32(0.1), **state})
        losses.append(float(state.pop("loss")))
        assert step(**given) == pytest.approx(losses[-1], rel=1e-5)
    assert losses[-1] < losses[0]
    for name, array in step.state().items():
        np.testing.assert_allclose(array, state[name], rtol=1e-4, atol=1e-6, err_msg=name)


FRAMEWORK_BLOCKS = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}
"""Where each ONNX gate lies in the weights of a framework that has i, f, c, o and r, z, h."""


def exported(kind: str, blocks: list[int], **options: Any) -> onnx.ModelProto:
    """`recurrent`'s model with weights in another order of gates, put right by slices and concats as exporters write them."""
    model = recurrent(kind, **options)
    graph = model.graph
    nodes: list[onnx.NodeProto] = []
    kept = [t for t in graph.initializer if t.name not in ("W", "R", "B")]
    for tensor in (t for t in graph.initializer if t.name in ("W", "R", "B")):
        ways = []
        for way, array in enumerate(numpy_helper.to_array(tensor)):
            pieces: list[str] = []
            for number, half in enumerate(np.split(array, 2) if tensor.name == "B" else [array]):
                param = f"{tensor.name}.{way}.{number}"
                gates = np.split(half, len(blocks))
                ordered = [gates[blocks.index(place)] for place in range(len(blocks))]
                kept.append(numpy_helper.from_array(np.concatenate(ordered), param))
                for place in blocks:
                    bounds = [f"{param}.from{place}", f"{param}.to{place}"]
                    for name, end in zip(bounds, (place, place + 1)):
                        kept.append(numpy_helper.from_array(np.array([end * HIDDEN]), name))
                    pieces.append(f"{param}.{place}")
                    nodes.append(helper.make_node("Slice", [param, *bounds, "zero"], [pieces[-1]]))
            ways.append(f"{tensor.name}.{way}")
            nodes.append(helper.make_node("Concat", pieces, [f"{ways[-1]}.flat"], axis=0))
            nodes.append(helper.make_node("Unsqueeze", [f"{ways[-1]}.flat", "zero"], [ways[-1]]))
        nodes.append(helper.make_node("Concat", ways, [tensor.name], axis=0))
    kept.append(numpy_helper.from_array(np.array([0]), "zero"))
    nodes += graph.node
    graph.ClearField("initializer")
    graph.ClearField("node")
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTM", {}), ("LSTM", {"peepholes": True}), ("GRU", {}), ("GRU", {"linear_before_reset": 1})],
)
def test_gates_are_read_where_the_framework_has_them(kind: str, options: dict[str, Any], direction: str) -> None:
    blocks = FRAMEWORK_BLOCKS[kind]
    expected_of = import_onnx(recurrent(kind, direction, **options), trainable=True)
    module = import_onnx(exported(kind, blocks, direction=direction, **options), trainable=True)
    given = feeds(recurrent(kind, direction, **options))
    how = BuildGradient(loss="mse", optimizer="none")
    steps = []
    for one in (expected_of, module):
        how.apply(one)
        PassManager.parse("canonicalize").run(one)
        steps.append(evaluate(one, given))
    expected, found = steps
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-14)
    for name in ("W", "R", "B"):
        for way, array in enumerate(expected[f"{name}.grad"]):
            for number, half in enumerate(np.split(array, 2) if name == "B" else [array]):
                gates = np.split(found[f"{name}.{way}.{number}.grad"], len(blocks))
                ordered = np.concatenate([gates[place] for place in blocks])
                np.testing.assert_allclose(ordered, half, rtol=1e-12, atol=1e-13)
    states = {p for p in module.main.params if p.name.startswith(("W.", "R."))}
    assert states
    copies = [op for op in module.main.ops if op.name in ("slice", "concat") and states & set(op.operands)]
    assert not copies or (kind, options) == ("GRU", {})  # The products before the reset read parts of the weight.


@pytest.mark.parametrize("blocks", [[2, 0, 1], [0, 2, 1]])
def test_gates_that_no_product_can_leave_where_they_are(blocks: list[int]) -> None:
    """The candidate of a GRU must come last; where it does not, the weights are copied into the order of ONNX."""
    model = exported("GRU", blocks, linear_before_reset=1)
    module, plain = (import_onnx(m, trainable=True) for m in (model, recurrent("GRU", linear_before_reset=1)))
    given = {"x": feeds(model)["x"]}
    np.testing.assert_allclose(evaluate(module, given)["y"], evaluate(plain, given)["y"], rtol=1e-13)

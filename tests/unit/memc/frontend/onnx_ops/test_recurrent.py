# SPDX-License-Identifier: Apache-2.0
"""Importing LSTM, GRU and RNN, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import memc
from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(0)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 2


def random(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def inputs_of(kind, directions, bias=True, lengths=None, states=True, peepholes=False, steps=STEPS):
    gates = GATES[kind]
    found = [
        random(steps, BATCH, WIDTH),
        random(directions, gates * HIDDEN, WIDTH),
        random(directions, gates * HIDDEN, HIDDEN),
        random(directions, 2 * gates * HIDDEN) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        random(directions, BATCH, HIDDEN) if states else None,
    ]
    if kind == "LSTM":
        found.append(random(directions, BATCH, HIDDEN) if states else None)
        found.append(random(directions, 3 * HIDDEN) if peepholes else None)
    while found[-1] is None:
        found.pop()
    return found


def outputs_of(kind):
    return 3 if kind == "LSTM" else 2


@pytest.mark.parametrize("known", [(), (1, 2, 3)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_directions(same_as_ort, kind, direction, known):
    inputs = inputs_of(kind, 2 if direction == "bidirectional" else 1)
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    same_as_ort(kind, inputs, outputs=outputs_of(kind), opset=14, known=known, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_many_steps(same_as_ort, kind, direction):
    """Seventeen steps are projected three at a time, the last two together."""
    inputs = inputs_of(kind, 2 if direction == "bidirectional" else 1, steps=17)
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    same_as_ort(kind, inputs, outputs=outputs_of(kind), opset=14, rtol=1e-4, atol=1e-5, **attrs)


def lstm_reading(last, layers=2, steps=24, batch=1, width=64):
    """ONNX model of stacked LSTMs of which `last` (nodes from "y" to "out") reads the output."""
    rng = np.random.default_rng(3)
    nodes, weights = [], []
    for n in range(layers):
        for name in ("w", "r"):
            data = rng.normal(0, 0.1, (1, 4 * width, width)).astype(np.float32)
            weights.append(onnx.numpy_helper.from_array(data, f"{name}{n}"))
        out = "y" if n == layers - 1 else f"x{n + 1}"
        nodes.append(helper.make_node("LSTM", [f"x{n}", f"w{n}", f"r{n}"], [f"y{n}"], hidden_size=width))
        nodes.append(helper.make_node("Squeeze", [f"y{n}", "axis"], [out]))
    weights.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "axis"))
    weights.append(onnx.numpy_helper.from_array(np.array(-1, np.int64), "at"))
    x = helper.make_tensor_value_info("x0", 1, [steps, batch, width])
    graph = helper.make_graph(nodes + last, "stack", [x], [helper.make_tensor_value_info("out", 1, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("batch", [1, 3])
def test_stacked_layers_keep_few_gates_and_no_unread_steps(batch):
    last = [
        helper.make_node("Transpose", ["y"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Gather", ["t", "at"], ["out"], axis=1),
    ]
    model = lstm_reading(last, batch=batch)
    x = np.random.default_rng(4).normal(size=(24, batch, 64)).astype(np.float32)
    compilation = memc.compile(model)
    sequence, step = x.nbytes, x.nbytes // 24
    # One whole sequence between the layers; three steps' gates and one more; two states and a temporary.
    assert compilation.report.arena_bytes <= sequence + (4 * 4 + 3) * step
    (found,) = compilation.load().run_numpy({"x0": x}).values()
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 0, 1)])
def test_a_transposed_sequence_is_transposed_a_few_steps_at_a_time(perm):
    model = lstm_reading([helper.make_node("Identity", ["y"], ["out"])], layers=1, batch=3)
    shape = [0, 0, 0]
    for axis, extent in zip(perm, (24, 3, 64)):
        shape[axis] = extent
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, shape))
    model.graph.node.insert(0, helper.make_node("Transpose", ["x"], ["x0"], perm=perm))
    x = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    compilation = memc.compile(model)
    step = x.nbytes // 24
    # Three steps' input, their gates and one more; states and temporaries. Never the 24 steps.
    assert compilation.report.arena_bytes <= (3 + 4 * 4 + 3) * step
    (found,) = compilation.load().run_numpy({"x": x}).values()
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(GATES))
def test_without_optional_inputs(same_as_ort, kind):
    inputs = inputs_of(kind, 1, bias=False, states=False)
    same_as_ort(kind, inputs, outputs=outputs_of(kind), opset=7, rtol=1e-4, atol=1e-5, hidden_size=HIDDEN)


@pytest.mark.parametrize("known", [(), (4,)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_sequence_lengths(same_as_ort, kind, direction, known):
    inputs = inputs_of(kind, 2 if direction == "bidirectional" else 1, lengths=[4, 1, 3])
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    same_as_ort(kind, inputs, outputs=outputs_of(kind), opset=14, known=known, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize("lengths", [(4, 2, 0), (0, 0, 0), (0, 1, 3)])
@pytest.mark.parametrize("known", [(), (4,)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_sequences_without_steps_end_in_zeros(same_as_ort, kind, direction, known, lengths):
    inputs = inputs_of(kind, 2 if direction == "bidirectional" else 1, lengths=lengths)
    attrs = {"hidden_size": HIDDEN, "direction": direction}
    same_as_ort(kind, inputs, outputs=outputs_of(kind), opset=14, known=known, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_without_steps_or_sequences(kind, direction, steps, batch, states, layout):
    """onnxruntime gives zeros where LSTM has no steps (and ends the process for GRU and RNN); the reference fails."""
    ways, count = (2 if direction == "bidirectional" else 1), outputs_of(kind)
    rows = GATES[kind] * HIDDEN
    shapes = [(steps, batch, WIDTH), (ways, rows, WIDTH), (ways, rows, HIDDEN), (ways, 2 * rows), None]
    shapes += [(ways, batch, HIDDEN)] * (count - 1) if states else []
    turn = (lambda shape: (shape[1], shape[0], *shape[2:])) if layout else (lambda shape: shape)
    arrays = {
        f"i{i}": random(*(turn(shape) if i in (0, 5, 6) else shape))
        for i, shape in enumerate(shapes)
        if shape is not None
    }
    names = [f"i{i}" if shape is not None else "" for i, shape in enumerate(shapes)]
    outputs = [f"o{i}" for i in range(count)]
    node = helper.make_node(kind, names, outputs, hidden_size=HIDDEN, direction=direction, layout=layout)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in arrays.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    found = memc.compile(model).load().run_numpy(arrays)
    y = (batch, steps, ways, HIDDEN) if layout else (steps, ways, batch, HIDDEN)
    np.testing.assert_array_equal(found["o0"], np.zeros(y, np.float32), strict=True)
    for name in outputs[1:]:
        np.testing.assert_array_equal(found[name], np.zeros(turn((ways, batch, HIDDEN)), np.float32), strict=True)


@pytest.mark.parametrize("reset_after", [0, 1])
def test_gru_resets_before_or_after_the_product(same_as_ort, reset_after):
    attrs = {"hidden_size": HIDDEN, "linear_before_reset": reset_after}
    same_as_ort("GRU", inputs_of("GRU", 1), outputs=2, opset=14, rtol=1e-4, atol=1e-5, **attrs)


def test_lstm_peepholes(same_as_ort):
    inputs = inputs_of("LSTM", 1, peepholes=True)
    same_as_ort("LSTM", inputs, outputs=3, opset=14, rtol=1e-4, atol=1e-5, hidden_size=HIDDEN)


def test_lstm_coupled_input_and_forget_gates(same_as_ort):
    attrs = {"hidden_size": HIDDEN, "input_forget": 1}
    same_as_ort("LSTM", inputs_of("LSTM", 1), outputs=3, opset=14, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize(
    "activation, alpha, beta",
    [
        ("Relu", [], []),
        ("Tanh", [], []),
        ("Sigmoid", [], []),
        ("Affine", [0.7], [0.1]),
        ("LeakyRelu", [0.2], []),
        ("ThresholdedRelu", [0.3], []),
        ("ScaledTanh", [1.2], [0.8]),
        ("HardSigmoid", [0.3], [0.4]),
        ("Elu", [0.9], []),
        ("Softsign", [], []),
        ("Softplus", [], []),
    ],
)
def test_rnn_activations(same_as_ort, activation, alpha, beta):
    attrs = {"hidden_size": HIDDEN, "activations": [activation]}
    attrs.update({"activation_alpha": alpha} if alpha else {}, **({"activation_beta": beta} if beta else {}))
    same_as_ort("RNN", inputs_of("RNN", 1), outputs=2, opset=14, rtol=1e-4, atol=1e-5, **attrs)


def test_clipped_gates(same_as_ort):
    attrs = {"hidden_size": HIDDEN, "clip": 0.4}
    same_as_ort("RNN", inputs_of("RNN", 1), outputs=2, opset=14, rtol=1e-4, atol=1e-5, **attrs)


def test_batch_first_layout(run_node):
    inputs = inputs_of("LSTM", 2)
    attrs = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    y, h, c = run_node("LSTM", inputs, outputs=3, opset=14, **attrs)
    moved = [np.ascontiguousarray(v.swapaxes(0, 1)) if i in (0, 5, 6) else v for i, v in enumerate(inputs)]
    y1, h1, c1 = run_node("LSTM", moved, outputs=3, opset=14, layout=1, **attrs)
    np.testing.assert_array_equal(y1, y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(h1, h.swapaxes(0, 1))
    np.testing.assert_array_equal(c1, c.swapaxes(0, 1))


def test_only_the_last_state_is_asked_for(same_as_ort):
    same_as_ort("LSTM", inputs_of("LSTM", 1), outputs=["", "h"], opset=14, rtol=1e-4, hidden_size=HIDDEN)


def test_unknown_activation(run_node):
    with pytest.raises(UnsupportedError, match="activation nonsense"):
        run_node("RNN", inputs_of("RNN", 1), outputs=2, opset=14, hidden_size=HIDDEN, activations=["nonsense"])

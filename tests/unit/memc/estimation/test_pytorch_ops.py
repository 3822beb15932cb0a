# SPDX-License-Identifier: Apache-2.0
"""The model of PyTorch's ops: what they keep and allocate, by bytes that its allocator was seen to hand out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from memc.estimation.frameworks.pytorch_2_11.reductions import Scratch, reduction_scratch
from memc.estimation.frameworks.pytorch_2_11.tensors import table
from memc.estimation.layouts import contiguous, is_dense, viewed
from memc.estimation.models import Loop, model_recording
from memc.estimation.onnx_graph import read_onnx
from memc.estimation.recognize import eager_graph
from memc.ir.errors import UnsupportedError


@pytest.mark.parametrize(
    ("rows", "columns", "expected"),
    [
        (1024, 768, Scratch(6_291_456, 24)),
        (1024, 3072, Scratch(25_165_824, 96)),
        (4096, 768, Scratch(25_165_824, 24)),
        (8, 768, None),
        (8, 2, None),
    ],
)
def test_what_a_sum_over_rows_takes(rows: int, columns: int, expected: Scratch | None) -> None:
    """As recorded in the backward pass of linear layers."""
    assert reduction_scratch(columns, rows, rows_fastest=False) == expected


def test_views_of_strided_tensors() -> None:
    """As PyTorch's computeStride; numpy tells which reshapes need a copy."""
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(400):
        dims = tuple(rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5)))
        order = tuple(rng.permutation(len(dims)))
        array = np.arange(np.prod(dims)).reshape(dims).transpose(order)
        other = list(array.shape)
        rng.shuffle(other)
        at = int(rng.integers(0, len(other)))
        wanted = tuple(other) if rng.random() < 0.5 else (*other[:at], 1, *other[at:])
        if rng.random() < 0.3:
            wanted = (int(np.prod(array.shape)),)
        strides = tuple(step // array.itemsize for step in array.strides)
        found = viewed(array.shape, strides, wanted)
        assert is_dense(array.shape, strides)
        copied = array.reshape(wanted)
        seen.add(found is None)
        assert (found is not None) == np.shares_memory(copied, array)
        if found is not None:
            assert all(
                size == 1 or mine == theirs // array.itemsize
                for size, mine, theirs in zip(wanted, found, copied.strides)
            )
    assert seen == {True, False} and contiguous((2, 3, 4)) == (12, 4, 1)


def _model(
    nodes: list[onnx.NodeProto], stored: dict[str, tuple[int, ...]], inputs: dict[str, tuple[int, ...]]
) -> bytes:
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    out = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    tensors = []
    for name, dims in stored.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent")
        tensors.append(tensor)
    graph = helper.make_graph(nodes, "g", given, [out], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


def _requests(path, optimizer: str | None = "sgd") -> list[tuple[str, str, int]]:
    events = model_recording(path, Loop(optimizer)).events
    return [
        (events.origin(at).op, events.origin(at).phase, int(events.nbytes[at]))
        for at in np.flatnonzero(events.makes)
        if events.origin(at).step in (0, -1)
    ]


def test_a_linear_layer(tmp_path) -> None:
    """Of three axes: one product with its bias, the gradient of the bias with the bytes of its sum."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["xw"]),
        helper.make_node("Add", ["b", "xw"], ["y"]),
    ]
    path = tmp_path / "linear.onnx"
    path.write_bytes(_model(nodes, {"w": (768, 64), "b": (768,)}, {"x": (8, 128, 64)}))
    found = _requests(path)
    assert [nbytes for op, phase, nbytes in found if op == "Linear" and phase == "forward"] == [
        8 * 128 * 768 * 4,
        32 * 2**20,
        2**20,
    ]
    backward = [nbytes for op, phase, nbytes in found if op == "Linear" and phase == "backward"]
    assert backward == [768 * 64 * 4, 32 * 2**20, 768 * 4, 6_291_456, 24]


def _attention_nodes() -> list[onnx.NodeProto]:
    """As torch.onnx writes scaled_dot_product_attention: query and key are both scaled."""
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.35])
    return [
        helper.make_node("Constant", [], ["s"], value=scale),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("Mul", ["q", "s"], ["qs"]),
        helper.make_node("Mul", ["kt", "s"], ["ks"]),
        helper.make_node("MatMul", ["qs", "ks"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
    ]


def test_attention_is_one_op(tmp_path) -> None:
    """Whose memory-efficient kernel keeps a number for each row."""
    path = tmp_path / "attention.onnx"
    path.write_bytes(_model(_attention_nodes(), {}, dict.fromkeys("qkv", (8, 12, 197, 64))))
    graph = eager_graph(read_onnx(path, {}))
    assert [(node.op, node.inputs) for node in graph.nodes] == [("Attention", ("q", "k", "v"))]
    forward = [nbytes for op, _, nbytes in _requests(path, None) if op == "Attention"]
    assert forward == [8 * 12 * 197 * 64 * 4, 0]


def test_the_bytes_of_attention_in_training(tmp_path) -> None:
    """As the allocator of PyTorch 2.11 was seen to be asked, for rows of 197 and heads of 64."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["q"]), *_attention_nodes()]
    path = tmp_path / "attention.onnx"
    shapes = dict.fromkeys("xkv", (8, 12, 197, 64))
    path.write_bytes(_model(nodes, {"w": (8, 12, 197, 64)}, shapes))
    found = [(phase, nbytes) for op, phase, nbytes in _requests(path) if op == "Attention"]
    whole = 4_841_472
    assert found == [("forward", whole), ("forward", 86_016)] + [
        ("backward", nbytes) for nbytes in (*[whole] * 5, 75_648, 75_648, 6_297_600)
    ]


def test_gelu_is_one_op(tmp_path) -> None:
    """x / sqrt(2), erf, + 1, * x, * 0.5."""
    numbers = {"r": 1.4142135, "one": 1.0, "half": 0.5}
    nodes = [
        helper.make_node("Constant", [], [name], value=helper.make_tensor(name, TensorProto.FLOAT, [], [number]))
        for name, number in numbers.items()
    ]
    nodes += [
        helper.make_node("Div", ["x", "r"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["p"]),
        helper.make_node("Mul", ["x", "p"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"]),
    ]
    path = tmp_path / "gelu.onnx"
    path.write_bytes(_model(nodes, {}, {"x": (2, 3)}))
    assert [(node.op, node.inputs) for node in eager_graph(read_onnx(path, {})).nodes] == [("Gelu", ("x",))]


def test_an_unknown_op_is_named(tmp_path) -> None:
    path = tmp_path / "unique.onnx"
    path.write_bytes(_model([helper.make_node("Hardmax", ["x"], ["y"], name="first")], {}, {"x": (2, 3)}))
    with pytest.raises(UnsupportedError, match=r"node `first` \(Hardmax\): the model of pytorch-2.11 has no such op"):
        model_recording(path, Loop())


def test_shapes_that_depend_on_values(tmp_path) -> None:
    """Arithmetic on shapes takes no bytes: a reshape to dims that are computed from those of the input."""
    nodes = [
        helper.make_node("Shape", ["x"], ["dims"]),
        helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("z", TensorProto.INT64, [], [0])),
        helper.make_node("Constant", [], ["rest"], value=helper.make_tensor("r", TensorProto.INT64, [1], [-1])),
        helper.make_node("Constant", [], ["axes"], value=helper.make_tensor("a", TensorProto.INT64, [1], [0])),
        helper.make_node("Gather", ["dims", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["row"]),
        helper.make_node("Concat", ["row", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["flat"]),
        helper.make_node("Tanh", ["flat"], ["y"]),
    ]
    path = tmp_path / "shapes.onnx"
    path.write_bytes(_model(nodes, {}, {"x": (2, 3, 4)}))
    graph = eager_graph(read_onnx(path, {}))
    assert [node.op for node in graph.nodes] == ["Reshape", "Tanh"] and graph.shapes["y"].dims == (2, 12)


def test_autocast_keeps_casts_of_weights(tmp_path) -> None:
    """For the region: a weight that two products read is cast once; inputs are cast for each, and the gradient of the weight comes in 16
    bits for each product, is added up in 16, and cast to 32."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    path = tmp_path / "twice.onnx"
    path.write_bytes(_model(nodes, {"w": (64, 64)}, {"x": (8, 64)}))
    events = model_recording(path, Loop("sgd", precision="amp-bf16")).events
    made = [(events.origin(at), int(events.nbytes[at])) for at in np.flatnonzero(events.makes)]
    forward = [(origin.op, nbytes) for origin, nbytes in made if (origin.phase, origin.step) == ("forward", 1)]
    half = 8 * 64 * 2
    linears = [nbytes for op, nbytes in forward if op == "Linear"]
    assert linears == [half, 64 * 64 * 2, half, half] and [nbytes for op, nbytes in forward if op == "Tanh"] == [half]
    weights = [
        nbytes for origin, nbytes in made if origin.phase == "backward" and origin.step == 1 and nbytes >= 64 * 64 * 2
    ]
    assert sorted(weights) == [64 * 64 * 2] * 3 + [64 * 64 * 4]


def test_a_model_of_bf16_takes_half(tmp_path) -> None:
    path = tmp_path / "linear.onnx"
    path.write_bytes(_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": (512, 512)}, {"x": (64, 512)}))
    sizes = {
        name: model_recording(path, Loop("adam", precision=name)).events.live_after().max() - 64 * 2**20
        for name in ("f32", "bf16")
    }
    assert 0.45 < sizes["bf16"] / sizes["f32"] < 0.55


def test_gradients_are_added_up_over_batches(tmp_path) -> None:
    """Of each batch the gradient is made, and added to the one that is there."""
    path = tmp_path / "linear.onnx"
    path.write_bytes(_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": (512, 512)}, {"x": (64, 512)}))
    events = model_recording(path, Loop("sgd", accumulate=3)).events
    made = [events.origin(at) for at in np.flatnonzero(events.makes & (events.nbytes == 512 * 512 * 4))]
    assert sum(origin.phase == "backward" and origin.step == 1 for origin in made) == 3
    live = events.live_after()
    one = model_recording(path, Loop("sgd")).events.live_after()
    assert live.max() == one.max() + 512 * 512 * 4


def _masked(made: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Attention whose scores get `mask` added."""
    nodes = _attention_nodes()
    scores = next(at for at, node in enumerate(nodes) if node.op_type == "Softmax")
    nodes[scores].input[0] = "masked"
    return [*made, *nodes[:scores], helper.make_node("Add", ["scores", "mask"], ["masked"]), *nodes[scores:]]


def test_a_mask_that_is_an_input_is_padded(tmp_path) -> None:
    """Its rows to a multiple of 8, as the allocator of PyTorch 2.11 was seen to be asked for rows of 130."""
    nodes = _masked([helper.make_node("Mul", ["x", "w"], ["q"])])
    shapes = {**dict.fromkeys("xkv", (8, 12, 130, 64)), "mask": (8, 1, 130, 130)}
    path = tmp_path / "masked.onnx"
    path.write_bytes(_model(nodes, {"w": (8, 12, 130, 64)}, shapes))
    found = [nbytes for op, phase, nbytes in _requests(path) if (op, phase) == ("Attention", "forward")]
    assert found == [540_800, 565_760, 3_194_880, 61_440]


def test_a_mask_with_a_gradient_makes_attention_op_by_op(tmp_path) -> None:
    """As T5's, whose biases of positions are learned: the probabilities are kept, and scores are there for a moment."""
    nodes = _masked([helper.make_node("Mul", ["b", "bias"], ["mask"])])
    shapes = {**dict.fromkeys("qkv", (2, 4, 16, 8)), "b": (1, 4, 16, 16)}
    path = tmp_path / "biased.onnx"
    path.write_bytes(_model(nodes, {"bias": (1, 4, 16, 16)}, shapes))
    whole, scores = 2 * 4 * 16 * 8 * 4, 2 * 4 * 16 * 16 * 4
    found = [nbytes for op, phase, nbytes in _requests(path) if (op, phase) == ("Attention", "forward")]
    assert found[:6] == [whole, whole, scores, scores, scores, whole]
    backward = [nbytes for op, phase, nbytes in _requests(path) if (op, phase) == ("Attention", "backward")]
    assert backward.count(scores) == 2 and backward[-1] == scores // 2


def test_the_table_of_elementwise_ops() -> None:
    """Every operand with a gradient gets one: a block that stays, or that of the output; nothing is freed that was not made."""
    for key, entry in table().items():
        events = entry["backward"]
        made = [event[1:].rstrip("?") for event in events if event[0] == "+"]
        freed = [event[1:] for event in events if event[0] == "-"]
        assert set(freed) <= set(made) and len(set(made)) == len(made)
        assert len(made) - len(freed) + len(entry["passed"]) == key.split(":")[1].count("t"), key
    assert table()["Tanh:t"]["saved"] == ["out"] and table()["Gelu:t"]["saved"] == ["0"]
    assert table()["Mul:tt"]["saved"] == ["0", "1"] and table()["Mul:ts"]["saved"] == [] == table()["Add:tt"]["saved"]

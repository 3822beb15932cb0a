# SPDX-License-Identifier: Apache-2.0
"""What ONNX does not say: the order of parameters, how long operands have names, slices that are a split, what a device chooses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from memc.estimation import estimate
from memc.estimation.frameworks import FRAMEWORKS
from memc.estimation.lifetimes import leaving
from memc.estimation.models import Loop, model_recording
from memc.estimation.module_order import moved, registered
from memc.estimation.onnx_graph import OnnxGraph, read_onnx
from memc.estimation.readings import LoopShape, readings
from memc.estimation.recognize import eager_graph
from memc.estimation.workspaces import SPLIT_BYTES, Convolution, Kind, Layout, Workspaces, table


def model(tmp_path: Path, nodes: list[object], stored: dict[str, tuple[int, ...]], dims: tuple[int, ...]) -> Path:
    tensors = []
    for name, shape in stored.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent")
        tensors.append(tensor)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", 1, None)], tensors)
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def test_parameters_have_the_order_of_the_file() -> None:
    """One that the exporter named otherwise comes after what was read before it."""
    stored = ["token", "embed.weight", "head.weight", "layer.weight"]
    assert registered(["embed.weight", "token", "layer.weight", "onnx::MatMul_7", "head.weight"], stored) == (
        *("token", "embed.weight", "head.weight", "layer.weight", "onnx::MatMul_7"),
    )
    assert registered(["a", "b"], []) == ("a", "b")


def test_modules_inside_a_module_are_moved_first() -> None:
    names = ["token", "embed.weight", "encoder.position", "encoder.ln.weight", "encoder.ln.bias", "head.weight"]
    expected = ("embed.weight", "encoder.ln.weight", "encoder.ln.bias", "encoder.position", "head.weight", "token")
    assert moved(names) == expected


def block(tmp_path: Path) -> OnnxGraph:
    """A module that adds what another made, and goes on."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["r"], name="/stem/Tanh"),
        helper.make_node("Tanh", ["r"], ["a"], name="/block/inner/Tanh"),
        helper.make_node("Add", ["a", "r"], ["s"], name="/block/Add"),
        helper.make_node("Tanh", ["s"], ["b"], name="/block/outer/Tanh"),
        helper.make_node("Tanh", ["b"], ["y"], name="/head/Tanh"),
    ]
    return read_onnx(model(tmp_path, nodes, {}, (4, 8)), {})


def test_operands_have_names_until_their_module_returns(tmp_path: Path) -> None:
    graph = block(tmp_path)
    plain, named = leaving(graph), leaving(graph, named=True)
    assert "a" in plain[2] and "a" in named[3]  # With the sum, or with the block.
    assert "b" in plain[4] and "b" in named[4]


def test_slices_that_take_a_tensor_apart_are_one_op(tmp_path: Path) -> None:
    """Their gradients are put together in one block; those of other slices each in one of the whole size."""

    def sliced(parts: list[tuple[int, int]]) -> Path:
        nodes = [helper.make_node("Mul", ["x", "w"], ["p"])]
        for at, (start, end) in enumerate(parts):
            for name, value in (("s", start), ("e", end), ("a", 1)):
                number = helper.make_tensor("v", TensorProto.INT64, [1], [value])
                nodes.insert(0, helper.make_node("Constant", [], [f"{name}{at}"], value=number))
            nodes.append(helper.make_node("Slice", ["p", f"s{at}", f"e{at}", f"a{at}"], [f"c{at}"]))
        nodes.append(helper.make_node("Add", ["c0", "c1"], ["y"]))
        return model(tmp_path, nodes, {"w": (4, 8)}, (4, 8))

    whole = eager_graph(read_onnx(sliced([(0, 4), (4, 2**60)]), {}))
    assert [node.op for node in whole.nodes] == ["Mul", "Split", "Add"]
    assert whole.nodes[1].outputs == ("c0", "c1")
    part = eager_graph(read_onnx(sliced([(0, 4), (2, 6)]), {}))
    assert [node.op for node in part.nodes] == ["Mul", "Slice", "Slice", "Add"]


def test_readings(network: Path, tmp_path: Path) -> None:
    """On tensor cores gradients of weights may be sums of parts; a gradient scaler may skip the first update."""
    graph = eager_graph(read_onnx(network, {"batch": 4}))
    torch, older = FRAMEWORKS["pytorch-2.11"], FRAMEWORKS["mxnet-1.5"]
    assert len(readings(graph, older, LoopShape("sgd"), Workspaces({}))) == 1
    assert len(readings(graph, torch, LoopShape("sgd"), Workspaces({}))) == 1
    found = readings(graph, torch, LoopShape("adam", precision="amp-f16"), Workspaces({}, tensor_cores=True))
    assert [(each.workspaces.split_sums, each.skipped) for each in found] == [(False, 0), (True, 0), (False, 1)]
    inner = eager_graph(block(tmp_path))
    plain, named = readings(inner, torch, LoopShape("sgd"), Workspaces({}))
    assert plain.names != named.names and plain.workspaces == named.workspaces
    assert len(readings(inner, older, LoopShape("sgd"), Workspaces({}))) == 1
    assert len(readings(graph, torch, LoopShape(None), Workspaces({}, tensor_cores=True))) == 1


def test_the_bytes_of_split_sums() -> None:
    """Only of gradients of weights whose operands are copied into another layout."""
    convolution = Convolution((8, 64, 56, 56), (64, 64, 3, 3), (8, 64, 56, 56), (1, 1), (1, 1), (1, 1), 1, False)
    table = {convolution.shape: {8: (3 * 2**20, 400, 5 * 2**20)}}
    plain, split = Workspaces(table), Workspaces(table, split_sums=True)
    assert split.bytes("weight", convolution) == plain.bytes("weight", convolution) + SPLIT_BYTES
    for direction in ("forward", "input"):
        assert split.bytes(direction, convolution) == plain.bytes(direction, convolution)  # type: ignore[arg-type]


def test_a_skipped_update_makes_states_later(network: Path) -> None:
    loop = Loop("adam", {"batch": 4}, precision="amp-f16")
    recording = model_recording(network, loop)
    skipped = recording.others[-1]
    steps = [
        {origin.step for origin in each.origins if origin.category == "optimizer"}
        for each in (recording.events, skipped)
    ]
    assert steps == [{0}, {1}]


@pytest.mark.parametrize("memory", [2**30, 2**31])
def test_the_estimate_is_the_largest_reading(network: Path, memory: int) -> None:
    """And one that does not fit counts, if there is one."""
    options = {"train": True, "optimizer": "adam", "precision": "amp-f16", "dims": {"batch": 256}}
    found = estimate(network, gpu="h200", alternatives=False, **options)
    recording = model_recording(network, Loop("adam", {"batch": 256}, precision="amp-f16"))
    alone = []
    for events in (recording.events, *recording.others):
        alone.append(
            estimate(replace(recording, events=events, others=()), gpu="h200", alternatives=False).reserved_bytes
        )
    assert len(alone) > 2 and found.reserved_bytes == max(alone)
    limited = estimate(network, gpu="h200", memory=memory, alternatives=False, **options)
    assert limited.fits == (found.device_bytes <= memory)


def test_a_node_without_a_module_is_in_that_of_its_operand(tmp_path: Path) -> None:
    """As the newer exporter's optimizer leaves them; the older one names a module's nodes by paths."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"], name="node_tanh"),
        helper.make_node("Split", ["a"], ["b", "y"], name="node_Split_7"),
        helper.make_node("Tanh", ["b"], ["c"], name="/Tanh"),
    ]
    path = model(tmp_path, nodes, {}, (4, 8))
    loaded = onnx.load(path)
    entry = loaded.graph.node[0].metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'layer', 'layer.inner', 'tanh']"
    onnx.save(loaded, path)
    graph = read_onnx(path, {})
    assert [node.scopes for node in graph.nodes] == [("layer", "layer.inner")] * 2 + [()]


def test_concatenations_inside_a_module_have_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["a"], axis=1, name="/layer/Concat"),
        helper.make_node("Tanh", ["a"], ["b"], name="/layer/norm/Tanh"),
        helper.make_node("Tanh", ["b"], ["c"], name="/layer/conv/Tanh"),
        helper.make_node("Concat", ["c", "c"], ["d"], axis=1, name="/Concat"),
        helper.make_node("Tanh", ["d"], ["e"], name="/head/Tanh"),
        helper.make_node("Tanh", ["e"], ["y"], name="/end/Tanh"),
    ]
    graph = read_onnx(model(tmp_path, nodes, {}, (4, 8)), {})
    plain, named = leaving(graph), leaving(graph, named=True)
    assert "a" in plain[1] and "a" in named[2]
    assert "d" in plain[4] and "d" in named[4]  # Not where a whole model would hold it.


def test_pads_that_the_host_works_out(tmp_path: Path) -> None:
    """As exporters write torch.nn.functional.pad: a list of pairs, turned. The result is a tensor of its own."""

    def number(name: str, *values: int) -> object:
        tensor = helper.make_tensor("v", TensorProto.INT64, [len(values)], values)
        return helper.make_node("Constant", [], [name], value=tensor)

    nodes = [
        number("pairs", 0, 0, 3, 5),
        number("two", 2, 2),
        number("flat", -1),
        helper.make_node("Reshape", ["pairs", "two"], ["table"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("Reshape", ["turned", "flat"], ["pads"]),
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("Pad", ["p", "pads"], ["y"], name="/Pad"),
    ]
    path = model(tmp_path, nodes, {"w": (4, 8)}, (4, 8))
    assert read_onnx(path, {}).shapes["y"].dims == (4, 16)
    events = model_recording(path, Loop("sgd")).events
    made = [(events.origin(at), int(events.nbytes[at])) for at in range(len(events)) if events.nbytes[at]]
    pad = [(origin.phase, nbytes) for origin, nbytes in made if origin and (origin.op, origin.step) == ("Pad", 1)]
    assert pad == [("forward", 4 * 16 * 4), ("backward", 4 * 8 * 4)]


@pytest.mark.parametrize("layout", ["", "channels_last"])
@pytest.mark.parametrize("kind", ["f32", "tf32", "f16", "bf16"])
def test_tables_of_workspaces(kind: Kind, layout: Layout) -> None:
    """Each has ResNet-50's convolutions at its batch sizes; a shape is found by its text, and read back from it."""
    found = table(kind, layout)
    convolution = Convolution((32, 64, 56, 56), (64, 64, 3, 3), (32, 64, 56, 56), (1, 1), (1, 1), (1, 1), 1, False)
    rows = found[convolution.shape]
    assert {1, 8, 32, 256} <= set(rows) and all(len(row) == 3 and min(row) >= 0 for row in rows.values())
    shapes = list(found)
    assert (
        len(shapes) == len(found) > 200
        and convolution.shape in shapes
        and replace(convolution, group=7).shape not in found
    )
    everything = Workspaces(found)
    assert everything.bytes("weight", convolution) == rows[32][2] and not everything.guessed

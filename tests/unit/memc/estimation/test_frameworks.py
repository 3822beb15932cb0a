# SPDX-License-Identifier: Apache-2.0
"""Models of frameworks of 2019: where their ops differ, and what each allocator makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from memc.estimation import estimate
from memc.estimation.eager import Machine
from memc.estimation.events import Kind
from memc.estimation.frameworks import FRAMEWORKS
from memc.estimation.frameworks.pytorch_2_11 import Context
from memc.estimation.models import Loop, model_recording
from memc.estimation.onnx_graph import OnnxGraph
from memc.estimation.workspaces import Convolution, Direction, Workspaces

X = 8 * 16 * 32 * 32 * 4
"""Bytes of the activation."""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Convolution, normalization, ReLU, pool, and a linear layer."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1] * 4, name="/c/Conv"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="/n/BatchNormalization"),
        helper.make_node("Relu", ["n"], ["r"], name="/r/Relu"),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="/p/MaxPool"),
        helper.make_node("Flatten", ["p"], ["f"], name="/Flatten"),
        helper.make_node("Gemm", ["f", "l"], ["y"], transB=1, name="/l/Gemm"),
    ]
    shapes = {"w": (16, 3, 3, 3), "s": (16,), "b": (16,), "m": (16,), "v": (16,), "l": (10, 16 * 256)}
    stored = []
    for name, dims in shapes.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent")
        stored.append(tensor)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 3, 32, 32])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [out], stored)
    path = tmp_path / "small.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def forward_sizes(path: Path, name: str) -> list[int]:
    """Bytes of what the forward pass of a step allocates for ops."""
    events = model_recording(path, Loop("sgd", framework=name)).events
    found = []
    for at in range(len(events)):
        origin = events.origin(at)
        if origin is not None and events.nbytes[at] and (origin.phase, origin.step) == ("forward", 1):
            if origin.op in ("Conv", "BatchNormalization", "Relu", "MaxPool"):
                found.append(int(events.nbytes[at]))
    return found


def test_where_ops_differ(network: Path) -> None:
    """TensorFlow normalizes in place and copies around a convolution; PyTorch's pool keeps indices of 8 bytes, which others do not."""
    pool = X // 4
    assert forward_sizes(network, "pytorch-1.2") == [X, X, 64, 64, pool, 2 * pool]
    assert forward_sizes(network, "mxnet-1.5") == [X, X, 64, 64, pool]
    assert forward_sizes(network, "tensorflow-1.12") == [16 * 27 * 4, X, X, pool]


def test_each_has_its_allocator_and_context(network: Path) -> None:
    """BFC's regions double from 2 MiB on, so that they hold two less than a power of two together."""
    found = {name: estimate(network, framework=name, train=True) for name in FRAMEWORKS}
    assert found["tensorflow-1.12"].allocator == "tensorflow"
    assert found["mxnet-1.5"].allocator == "mxnet-unpooled"
    assert found["pytorch-1.2"].allocator == found["pytorch-2.11"].allocator == "pytorch"
    mib = found["tensorflow-1.12"].reserved_bytes / 2**20
    assert (mib + 2).is_integer() and int(mib + 2).bit_count() == 1
    for name in ("pytorch-1.2", "tensorflow-1.12", "mxnet-1.5"):
        assert found[name].breakdown["outside"] == 379 * 2**20
        assert any("DNNMem" in note for note in found[name].assumed)
    assert found["pytorch-2.11"].requested_bytes >= found["pytorch-1.2"].requested_bytes + 64 * 2**20


def test_a_gradient_that_is_applied_at_once(network: Path) -> None:
    """By plain SGD in TensorFlow; another optimizer needs all of them in a step, and PyTorch keeps them till the next."""
    gradient = 10 * 16 * 256 * 4

    def released(name: str, optimizer: str) -> bool:
        """Whether the gradient of the linear layer goes soon after it is there."""
        events = model_recording(network, Loop(optimizer, framework=name)).events
        backward = [
            at
            for at in range(len(events))
            if events.nbytes[at] and (events.origin(at).phase, events.origin(at).step) == ("backward", 1)
        ]
        block = events.blocks[next(at for at in backward if events.nbytes[at] == gradient)]
        return any(events.blocks[at] == block and events.kinds[at] == Kind.FREE for at in range(backward[-1]))

    assert released("tensorflow-1.12", "sgd")
    assert not released("tensorflow-1.12", "momentum") and not released("pytorch-1.2", "sgd")


def test_an_unrolled_lstm_has_blocks_of_each_step(tmp_path: Path) -> None:
    """In the frameworks that unroll: outputs of 5 steps are 5 blocks; cuDNN has one."""
    steps, batch, size = 5, 4, 64
    shapes = {"w": (1, 4 * size, size), "r": (1, 4 * size, size), "b": (1, 8 * size)}
    stored = []
    for name, dims in shapes.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent")
        stored.append(tensor)
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=size, name="/l/LSTM")]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, size])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [out], stored)
    path = tmp_path / "lstm.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    step = batch * size * 4

    def made(name: str) -> list[int]:
        events = model_recording(path, Loop("sgd", framework=name)).events
        origins = [(at, events.origin(at)) for at in range(len(events)) if events.nbytes[at]]
        return [int(events.nbytes[at]) for at, o in origins if (o.op, o.phase, o.step) == ("LSTM", "forward", 1)]

    matrices = 2 * 4 * size * size * 4 + 8 * size * 4  # Biases have two axes here.
    assert made("tensorflow-1.12") == [step] * steps
    assert made("mxnet-1.5") == [step] * steps * 11
    assert made("pytorch-1.2")[5] == 4 * step * steps  # The workspace: gates of a layer.
    states = [step] * 2
    workspace = matrices + 8 * 4 * step + 512  # Gates of eight steps, though there are fewer.
    assert made("pytorch-2.11") == [*states, step * steps, *states, workspace, 5 * step * steps + 256]


def test_what_mxnet_has_from_the_start(network: Path) -> None:
    """Places of gradients, which no step drops; and convolutions share a workspace, which grows and stays."""
    events = model_recording(network, Loop("sgd", framework="mxnet-1.5")).events
    gradients = [at for at in range(len(events)) if events.nbytes[at] and events.origin(at).category == "gradients"]
    sizes = sorted(int(events.nbytes[at]) for at in gradients)
    assert sizes == sorted([16 * 27 * 4, 64, 64, 10 * 16 * 256 * 4])
    freed = set(events.blocks[events.frees].tolist())
    assert all(events.origin(at).step == -1 and events.blocks[at] not in freed for at in gradients)


def test_a_shared_workspace_grows_and_stays() -> None:
    convolution = Convolution((8, 3, 32, 32), (16, 3, 3, 3), (8, 16, 32, 32), (1, 1), (1, 1), (1, 1), 1, False)
    machine = Machine(lambda name: 0)
    known = {convolution.shape: {8: (100, 300, 200)}}
    graph = OnnxGraph((), {}, (), ("y",), ())
    context = Context(machine, graph, Workspaces(known), True, set(), {}, {}, keeps_workspace=True)
    directions: tuple[Direction, ...] = ("forward", "input", "weight")
    for direction in directions:
        context.workspace(direction, convolution)
    events = machine.events.events()
    assert events.nbytes[events.makes].tolist() == [100, 300] and events.live_after()[-1] == 300


def test_dropout_and_transposes(tmp_path: Path) -> None:
    """TensorFlow's dropout keeps a quotient and a mask of floats, MXNet's a mask of floats, PyTorch's one of bytes; TensorFlow's transposes
    are copies."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"], name="/p/Mul"),
        helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0], name="/t/Transpose"),
        helper.make_node("Dropout", ["t", "ratio"], ["y"], name="/d/Dropout"),
    ]
    stored = [helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5])]
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(64, 32), data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="absent")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 32])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [out], [*stored, weight])
    path = tmp_path / "dropout.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    whole = 64 * 32 * 4

    def made(name: str, op: str) -> list[int]:
        events = model_recording(path, Loop("sgd", framework=name)).events
        found = [(events.origin(at), int(events.nbytes[at])) for at in range(len(events)) if events.nbytes[at]]
        return [nbytes for origin, nbytes in found if (origin.op, origin.phase, origin.step) == (op, "forward", 1)]

    assert made("tensorflow-1.12", "Dropout") == [whole] * 3 and made("mxnet-1.5", "Dropout") == [whole] * 2
    assert made("pytorch-1.2", "Dropout") == [whole // 4, whole]
    assert made("tensorflow-1.12", "Transpose") == [whole] and made("mxnet-1.5", "Transpose") == []

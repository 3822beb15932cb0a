# SPDX-License-Identifier: Apache-2.0
"""Modules that are recomputed: what is kept of them, and what the backward pass makes again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from memc.estimation import estimate
from memc.estimation.models import Loop, model_recording
from memc.ir.errors import UsageError

WHOLE = 256 * 512 * 4
LAYERS = 4


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Four layers of a product, tanh, exp and tanh, named as an exporter does."""
    nodes, x, stored = [], "x", []
    for layer in range(LAYERS):
        tensor = TensorProto(name=f"w{layer}", data_type=1, dims=(512, 512), data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="absent")
        stored.append(tensor)
        for op in ("MatMul", "Tanh", "Exp", "Tanh"):
            out = f"v{len(nodes)}"
            inputs = [x, f"w{layer}"] if op == "MatMul" else [x]
            nodes.append(helper.make_node(op, inputs, [out], name=f"/m/layer.{layer}/part/{op}{len(nodes)}"))
            x = out
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [256, 512])
    out = helper.make_tensor_value_info(x, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [out], stored)
    path = tmp_path / "layers.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def made(path: Path, pattern: str | None) -> list[tuple[str, str]]:
    """Op and phase of each activation of a step."""
    events = model_recording(path, Loop("sgd", checkpoint=pattern)).events
    origins = [events.origin(at) for at in np.flatnonzero(events.makes & (events.nbytes == WHOLE))]
    return [(origin.op, origin.phase) for origin in origins if origin.step == 1 and origin.category == "activations"]


def test_each_layer_is_made_twice(network: Path) -> None:
    layer = ["Linear", "Tanh", "Exp", "Tanh"]
    assert [op for op, phase in made(network, None) if phase == "backward"] == []
    found = made(network, "m.layer.*")
    assert [op for op, phase in found if phase == "forward"][: 4 * LAYERS] == layer * LAYERS
    assert [op for op, phase in found if phase == "backward"] == layer * LAYERS


def test_what_is_live(network: Path) -> None:
    """Between the passes the inputs of the four layers, one of which is the model's, and the result with its log softmax; without,
    three tensors more of each layer: the results of tanh, exp and tanh."""

    def live(pattern: str | None) -> int:
        events = model_recording(network, Loop("sgd", checkpoint=pattern)).events
        at = next(
            at
            for at in range(len(events))
            if events.origin(at) is not None
            and (events.origin(at).step, events.origin(at).op) == (1, "cross_entropy")
            and events.nbytes[at] == 4
        )
        weights = LAYERS * 512 * 512 * 4
        return round((int(events.live_after()[at]) - weights - 33 * 2**20 - 32 * 2**20) / WHOLE, 1)

    before, after = live(None), live("*.layer.*")
    assert before - after == 2 * LAYERS


def test_gradients_are_the_same(network: Path) -> None:
    def gradients(pattern: str | None) -> int:
        events = model_recording(network, Loop("sgd", checkpoint=pattern)).events
        wanted = events.makes & (events.nbytes == 512 * 512 * 4)
        return sum(events.origin(at).category == "gradients" for at in np.flatnonzero(wanted))

    assert gradients(None) == gradients("m.layer.*") == 3 * LAYERS


def test_mistakes(network: Path) -> None:
    with pytest.raises(
        UsageError, match=r"checkpoint: expected a pattern of modules' names, got 'h.*'; there are such as m.layer"
    ):
        estimate(network, train=True, checkpoint="h.*")
    with pytest.raises(UsageError, match="checkpoint: expected train with it"):
        estimate(network, checkpoint="m.layer.*")

# SPDX-License-Identifier: Apache-2.0
"""A model for training whose weights are Constant nodes, as some exporters write them, with these as stored tensors.

Only where the model stores no tensor of floats with axes: beside stored weights, a Constant may as well be a table of positions, a
filter bank or a mean of images, which training must leave alone. Then a warning tells of those that look like weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)

LINEAR = {
    "MatMul": (0, 1),
    "Gemm": (1,),
    "Conv": (1,),
    "ConvTranspose": (1,),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
}
"""Inputs that are weights, by op."""

_log = logging.getLogger("memc")


def store_constants(model: ModelProto) -> ModelProto:
    """The model with its Constant nodes of floats stored, if they are all that could be trained; itself if not."""
    graph = model.graph
    found = {node.output[0]: node for node in _constants(graph)}
    if not found or any(_is_weight(tensor) for tensor in graph.initializer) or graph.sparse_initializer:
        return model
    made = ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    made.graph.node.extend(node for node in graph.node if not node.output or node.output[0] not in found)
    for name, node in found.items():
        tensor = made.graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = name
        if model.ir_version < 4:  # Which wants stored tensors declared as inputs as well.
            made.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
    return made


def warn_of_constants(model: ModelProto, stored: ModelProto) -> None:
    """Say which Constant nodes are trained, or are not although they look like weights."""
    if stored is not model:
        number = len(stored.graph.initializer) - len(model.graph.initializer)
        _log.warning("the model stores no weights: its %d Constant nodes of floats with axes are trained", number)
        return
    constants = {node.output[0] for node in _constants(model.graph)}
    names = {
        name: None
        for node in model.graph.node
        if not node.domain
        for index, name in enumerate(node.input)
        if name in constants and index in LINEAR.get(node.op_type, ())
    }
    if names:
        said = ", ".join(list(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        _log.warning(
            "not trained, since they are Constant nodes beside stored weights: %s; store them to train them", said
        )


def _constants(graph: GraphProto) -> Iterator[NodeProto]:
    """Constant nodes of floats with axes that are no output of the graph."""
    outputs = {output.name for output in graph.output}
    for node in graph.node:
        if (
            node.op_type == "Constant"
            and node.domain in ("", "ai.onnx")
            and len(node.attribute) == len(node.output) == 1
        ):
            attribute = node.attribute[0]
            if attribute.name == "value" and _is_weight(attribute.t) and node.output[0] not in outputs:
                yield node


def _is_weight(tensor: TensorProto) -> bool:
    elements = 1
    for extent in tensor.dims:
        elements *= extent
    return tensor.data_type in FLOATS and elements > 1

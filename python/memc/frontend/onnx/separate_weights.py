# SPDX-License-Identifier: Apache-2.0
"""A model for training, in which what was one tensor only because of equal contents is several again.

Exporters store tensors of equal contents once. In a model that was never trained that joins scales of one with variances
of one, and biases of zero with means of zero, over all layers of a width. Training must not move them together:

- PyTorch's exporter keeps the names of joined tensors by Identity nodes, and a tensor that a model really shares has no
  such node. So an Identity of a stored float tensor becomes a stored tensor of its own.
- The running statistics of a batch normalization that are read as anything else too become tensors of their own. Two
  normalizations with the same statistics are one layer used twice, and go on sharing them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
STATISTICS = {3: "running_mean", 4: "running_var"}
"""Inputs of BatchNormalization."""


def separate(model: ModelProto) -> ModelProto:
    """The model with a stored tensor for each role; itself if it has that already. External data are not read."""
    if not any(_aliases(model.graph)) and not any(_shared_statistics(model.graph)):
        return model
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    while aliases := {node.output[0]: node.input[0] for node in _aliases(graph)}:
        for copy, name in aliases.items():
            _store_again(graph, name, copy)
        kept = [node for node in graph.node if not (node.op_type == "Identity" and node.output[0] in aliases)]
        del graph.node[:]
        graph.node.extend(kept)
    for node, index in list(_shared_statistics(graph)):
        copy = _unused(f"{node.output[0]}.{STATISTICS[index]}", {t.name for t in graph.initializer})
        _store_again(graph, node.input[index], copy)
        node.input[index] = copy
    return made


def _aliases(graph: GraphProto) -> Iterator[NodeProto]:
    """Identity nodes that only give a stored tensor another name, which is no output of the graph."""
    stored, outputs = _stored(graph), {o.name for o in graph.output}
    for node in graph.node:
        if node.op_type == "Identity" and not node.domain and len(node.input) == len(node.output) == 1:
            if node.input[0] in stored and node.output[0] not in outputs:
                yield node


def _shared_statistics(graph: GraphProto) -> Iterator[tuple[NodeProto, int]]:
    """Batch normalizations, with inputs of theirs that are statistics here and something else elsewhere."""
    stored = _stored(graph)
    roles: dict[str, set[str]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            roles.setdefault(name, set()).add(_role(node, index))
    for node in graph.node:
        for index, name in enumerate(node.input):
            if _role(node, index) and name in stored and len(roles[name]) > 1:
                yield node, index


def _role(node: NodeProto, index: int) -> str:
    """Which statistic an input is; empty for anything else."""
    return STATISTICS.get(index, "") if node.op_type == "BatchNormalization" else ""


def _stored(graph: GraphProto) -> set[str]:
    return {t.name for t in graph.initializer if t.data_type in FLOATS}


def _unused(name: str, taken: Collection[str]) -> str:
    number, found = 1, name
    while found in taken:
        number, found = number + 1, f"{name}.{number}"
    return found


def _store_again(graph: GraphProto, name: str, copy: str) -> None:
    """Store the tensor `name` under the name `copy` too."""
    tensor = graph.initializer.add()
    tensor.CopyFrom(next(t for t in graph.initializer if t.name == name))
    tensor.name = copy
    # Before IR version 4, stored tensors are declared as inputs as well.
    for declared in [info for info in graph.input if info.name == name]:
        info = graph.input.add()
        info.CopyFrom(declared)
        info.name = copy

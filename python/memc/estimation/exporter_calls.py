# SPDX-License-Identifier: Apache-2.0
"""PyTorch's ops in an ONNX model that its newer exporter wrote, which says of each node of which op it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from .onnx_graph import Node, OnnxGraph, TensorShape

CALLS: Mapping[str, str] = {
    "addmm": "Linear",
    "dropout": "Dropout",
    "embedding": "Embedding",
    "gelu": "Gelu",
    "layer_norm": "LayerNormalization",
    "linear": "Linear",
    "native_dropout": "Dropout",
    "scaled_dot_product_attention": "Attention",
    "silu": "Silu",
}
"""PyTorch's ops that its newer exporter may write as several nodes."""


def from_calls(graph: OnnxGraph) -> OnnxGraph:
    """Nodes of one call as one node, each with the parameters that the call names."""
    groups: dict[str, list[Node]] = {}
    for at, node in enumerate(graph.nodes):
        key = node.call.split(" ")[0] if _target(node) in CALLS else ""
        groups.setdefault(key or f" {at}", []).append(node)
    last = {id(group[-1]): group for group in groups.values()}
    shapes = dict(graph.shapes)
    stored = {re.sub(r"\W", "_", name): name for name in graph.parameters}
    owned: list[str] = []
    buffers: list[str] = []
    nodes = []
    for node in graph.nodes:
        group = last.get(id(node))
        if group is not None:
            if node.op in ("Conv", "ConvTranspose") and "batch_norm" in _target(node):
                made = _unfused(node, stored, shapes)
            elif _target(node) not in CALLS:
                made = _with_copy(_owned(node, stored, shapes), shapes)
            elif _target(node) == "scaled_dot_product_attention":
                made = _attended(group, graph, shapes)
            else:
                made = [_called(group, graph, stored, shapes)]
            arguments = [name for name in _arguments(node) if name.startswith("p_")]
            named = {_parameter(name, stored) for name in arguments} if node.call else set(graph.parameters)
            if made[0].op != node.op or len(made) > 1:
                named |= {each.inputs[1] for each in made if each.op in ("Conv", "ConvTranspose")}
            read = [name for each in made for name in each.inputs]
            owned += [name for name in read if name in named]
            buffers += [name for name in read if name not in named and (name in graph.parameters or name[:2] == "b_")]
            nodes += made
    if not any(node.call for node in graph.nodes):
        return graph
    parameters = dict.fromkeys(owned)
    others = dict.fromkeys((*graph.buffers, *(name for name in buffers if name not in parameters)))
    return replace(graph, nodes=tuple(nodes), shapes=shapes, parameters=tuple(parameters), buffers=tuple(others))


def _target(node: Node) -> str:
    found = re.search(r"target=torch\.ops\.aten\.(\w+)", node.call)
    return found.group(1) if found else ""


def _arguments(node: Node) -> tuple[str, ...]:
    found = re.search(r"args = \((.*)\), kwargs", node.call)
    return tuple(re.findall(r"%(\w+)", found.group(1))) if found else ()


def _parameter(name: str, stored: Mapping[str, str]) -> str:
    """The stored tensor that a call names, or the call's name for one that was stored otherwise."""
    return stored.get(name[2:], name)


def _owned(node: Node, stored: Mapping[str, str], shapes: dict[str, TensorShape]) -> Node:
    """The node with parameters of its own: the exporter stores equal tensors once."""
    named = [_parameter(name, stored) for name in _arguments(node) if name.startswith("p_")]
    given = [name for name in node.inputs if name in stored.values()]
    if len(named) != len(given):
        return node
    own = dict(zip(given, named))
    for name, other in own.items():
        shapes.setdefault(other, shapes[name])
    return replace(node, inputs=tuple(own.get(name, name) for name in node.inputs))


def _with_copy(node: Node, shapes: dict[str, TensorShape]) -> list[Node]:
    """The node, and the copy whose name its result has: concatenation with what is empty, which the exporter leaves out."""
    name = node.call.split(" ")[0].lstrip("%")
    out = node.outputs[0]
    if not name or name == out or not re.fullmatch(r"cat(_\d+)?", out) or name in shapes:
        return [node]
    shapes[name] = shapes[out]
    return [replace(node, outputs=(name,)), replace(node, op="Copy", inputs=(name,))]


def _unfused(node: Node, stored: Mapping[str, str], shapes: dict[str, TensorShape]) -> list[Node]:
    """A convolution and the normalization that the exporter has put into its weights, as it does without regard to training."""
    x, *parameters = _arguments(node)
    x = x if x not in shapes else f"{node.outputs[0]}.convolution"
    shapes[x] = shapes[node.outputs[0]]
    channels = TensorShape(shapes[node.outputs[0]].dims[1:2], 4)
    names = [_parameter(name, stored) for name in parameters[:4]]
    for name in names:
        shapes.setdefault(name, channels)
    convolution = replace(node, outputs=(x,), inputs=node.inputs[:2])
    normalization = replace(node, op="BatchNormalization", inputs=(x, *names), attributes={"outputs": 1})
    return [convolution, normalization]


def _called(group: Sequence[Node], graph: OnnxGraph, stored: Mapping[str, str], shapes: dict[str, TensorShape]) -> Node:
    """One node for the call."""
    node, target = group[-1], _target(group[-1])
    made = {name for each in group for name in each.outputs}
    outside = [
        name for each in group for name in each.inputs if name and name not in made and name not in graph.scalars
    ]
    out = node.outputs[0]
    called = [_parameter(name, stored) if name.startswith("p_") else name for name in _arguments(node)]
    if target == "addmm" and len(called) == 3:
        called = [called[1], called[2], called[0]]
    others = [name for name in outside if name not in graph.parameters]
    for at, name in enumerate(called):
        if name not in shapes and not name.startswith("p_") and others:  # What the exporter folded away.
            called[at] = others.pop(0)
    inputs = [name for name in called if name in shapes or name.startswith("p_")]
    attributes = dict(node.attributes)
    if target in ("linear", "addmm"):
        x, y = shapes[inputs[0]], shapes[out]
        attributes["transposed"] = target == "addmm"
        shapes.setdefault(inputs[1], TensorShape((y.dims[-1], x.dims[-1]), x.itemsize))
    if target == "embedding":
        attributes["axis"] = 0
        tables = [shapes[name] for name in outside if name in graph.parameters]
        shapes.setdefault(inputs[0], tables[0] if tables else shapes[node.inputs[0]])
    for name in inputs[1:]:
        x = shapes[inputs[0]]
        shapes.setdefault(name, TensorShape(shapes[out].dims[-1:], x.itemsize))
    op = CALLS[target]
    if target == "gelu" and "tanh" in node.call:
        op = "GeluTanh"
    return replace(node, op=op, inputs=tuple(inputs), outputs=(out,), attributes=attributes)


def _attended(group: Sequence[Node], graph: OnnxGraph, shapes: dict[str, TensorShape]) -> list[Node]:
    """Attention, and copies of keys and values that the call has and the model lacks: an exporter leaves out the concatenation
    with an empty cache."""
    made = {name for each in group for name in each.outputs}

    def given(*ops: str) -> list[str]:
        return [
            name
            for each in group
            if each.op in ops
            for name in each.inputs
            if name and name not in made and name not in graph.scalars
        ]

    end = group[-1]
    value = end.inputs[1]
    scaled = [*given("Mul"), *given("MatMul")]  # Without a scale there is no product with one.
    query = scaled[0]
    key = next(name for name in [*given("Reshape", "Transpose"), *scaled[1:]] if name != query)
    masks = [*given("Where"), *given("Add")][:1]
    turned = next(
        (each for each in graph.nodes if masks and masks[0] in each.outputs and _target(each) == _target(end)), None
    )
    masks = (
        [turned.inputs[0]] if turned is not None else masks
    )  # One that the exporter has turned into floats once for all.
    operands, nodes = [query, key, value], []
    for at, called in enumerate(_arguments(end)[:3]):
        if called in shapes:
            operands[at] = called
        elif called.startswith("cat"):
            shapes[called] = shapes[operands[at]]
            nodes.append(replace(end, op="Copy", inputs=(operands[at],), outputs=(called,)))
            operands[at] = called
    return [*nodes, replace(end, op="Attention", inputs=(*operands, *masks))]

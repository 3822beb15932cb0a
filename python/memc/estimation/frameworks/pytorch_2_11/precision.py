# SPDX-License-Identifier: Apache-2.0
"""The types of tensors: f32, a model of bf16, and autocast, which casts operands op by op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...onnx_graph import Node, TensorShape
from .context import Context

PRECISIONS: Mapping[str, str] = {
    "f32": "",
    "bf16": "all tensors and the optimizer's states in bf16",
    "amp-bf16": "autocast to bf16",
    "amp-f16": "autocast to f16, with a gradient scaler",
}

IN_HALF = frozenset({"Attention", "Conv", "ConvTranspose", "Gemm", "LSTM", "Linear", "MatMul"})
"""Ops that autocast runs in 16 bits."""
IN_FULL = frozenset(
    {"Exp", "LayerNormalization", "Log", "LogSoftmax", "Pow", "Reciprocal", "ReduceSum", "Rsqrt", "Softmax", "Softplus"}
)
"""Those that it runs in 32; others run in the widest type of their operands."""


def typed_shapes(shapes: Mapping[str, TensorShape], precision: str) -> dict[str, TensorShape]:
    """The shapes of a model's tensors before a step: with bf16, all floats have 2 bytes."""
    if precision != "bf16":
        return dict(shapes)
    return {name: replace(shape, itemsize=2) if shape.floating else shape for name, shape in shapes.items()}


def cast_to(context: Context, name: str, itemsize: int) -> str:
    """The tensor in another type, as an op of its own on the tape; the same name if it has the type. One of a parameter is kept until
    the region ends."""
    machine, shape = context.machine, context.shape(name)
    if shape.itemsize == itemsize or not shape.floating or name in context.graph.scalars:
        return name
    cast = f"{name} in {itemsize * 8} bits"
    if cast in machine.tensors:
        return cast
    context.shapes[cast] = replace(shape, itemsize=itemsize)
    node = Node("cast", "", (name,), (cast,), {})
    storage = context.output(node, strides=machine.tensors[name].strides)
    storage.nbytes = context.shapes[cast].nbytes
    context.record(node, [name], [], lambda _: [context.gradient(name)])
    return cast


def autocast(context: Context, node: Node) -> tuple[Node, list[str]]:
    """The node with operands in the types that autocast gives them, and the casts that no later op shares; the type of its result
    is set."""
    floats = [
        name for name in node.inputs if name and context.shape(name).floating and name not in context.graph.scalars
    ]
    casts: list[str] = []
    widest = max((context.shape(name).itemsize for name in floats), default=4)
    if node.op == "BatchNormalization":
        widest = context.shape(node.inputs[0]).itemsize
    if node.op in IN_HALF or node.op in IN_FULL:
        widest = 2 if node.op in IN_HALF else 4
        inputs = []
        for name in node.inputs:
            found = cast_to(context, name, widest) if name in floats else name
            if found != name and not (name in context.graph.parameters and widest == 2):
                casts.append(found)
            inputs.append(found)
        node = replace(node, inputs=tuple(inputs))
    for name in node.outputs:
        if name and context.shape(name).floating:
            context.shapes[name] = replace(context.shape(name), itemsize=widest)
    return node, casts


def end_region(context: Context) -> None:
    """Casts of parameters are given up."""
    for name in context.graph.parameters:
        context.machine.drop(f"{name} in 16 bits")

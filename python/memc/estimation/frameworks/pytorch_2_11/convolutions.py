# SPDX-License-Identifier: Apache-2.0
"""Convolutions, batch normalization, pools, and activations that run in place.

Saved tensors are those of PyTorch's `derivatives.yaml`; what else an op allocates was seen in recordings of its allocator. ONNX does not
say which ops ran in place: ReLU and ReLU6 are taken to where they may (as torchvision's models have them), an addition before them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Protocol

from ...eager import Storage
from ...onnx_graph import Node, TensorShape, spatial
from ...workspaces import Convolution
from .context import Context


def _convolution(context: Context, node: Node) -> None:
    x, weight = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    machine, found = context.machine, convolution_of(context, node)
    context.output(node)
    machine.scratch(context.workspaces.bytes("forward", found))
    tensors = machine.tensors

    def backward(_: Storage) -> list[Storage | None]:
        grad_x = context.gradient(x)
        if grad_x is not None:
            machine.scratch(context.workspaces.bytes("input", found))
        grad_weight = context.gradient(weight)
        machine.scratch(context.workspaces.bytes("weight", found))
        return [grad_x, grad_weight, *([context.gradient(bias)] if bias else [])]

    context.record(node, [x, weight, *([bias] if bias else [])], [tensors[x], tensors[weight]], backward)


class Shapes(Protocol):
    """Whoever knows the shapes of tensors."""

    def shape(self, name: str) -> TensorShape:
        """Of a tensor."""


def convolution_of(context: Shapes, node: Node) -> Convolution:
    """What the node computes, by its shapes."""
    x, weight = context.shape(node.inputs[0]).dims, context.shape(node.inputs[1]).dims
    rank = len(x) - 2
    pads = spatial(node.attributes, "pads", 2 * rank, 0)[:rank]
    strides = spatial(node.attributes, "strides", rank, 1)
    dilations = spatial(node.attributes, "dilations", rank, 1)
    group = int(node.attributes.get("group", 1))
    out = context.shape(node.outputs[0]).dims
    return Convolution(x, weight, out, pads, strides, dilations, group, node.op == "ConvTranspose")


def _batch_normalization(context: Context, node: Node) -> None:
    x, weight, bias = node.inputs[:3]
    machine = context.machine
    context.output(node)
    if not context.training:
        return
    channels = context.shape(weight).nbytes
    statistics = [machine.new(channels, "activations") for _ in range(2)]
    tensors = machine.tensors

    def backward(_: Storage) -> list[Storage | None]:
        return [context.gradient(x), context.gradient(weight), context.gradient(bias)]

    context.record(node, [x, weight, bias], [tensors[x], tensors[weight], *statistics], backward)
    for storage in statistics:
        machine.release(storage)


def _relu(context: Context, node: Node) -> None:
    """What is saved is the result."""
    x = node.inputs[0]
    context.result(node)
    context.record(node, [x], [context.machine.tensors[node.outputs[0]]], lambda _: [context.gradient(x)])


def _clamp(context: Context, node: Node) -> None:
    """What is saved is the operand: in place, a copy of it."""
    x = node.inputs[0]
    machine = context.machine
    saved = machine.hold(machine.tensors[x])
    if node.outputs[0] in context.in_place and context.training:
        machine.release(saved)
        saved = machine.new(context.shape(x).nbytes, "activations")
    context.result(node)
    context.record(node, [x], [saved], lambda _: [context.gradient(x)])
    machine.release(saved)


def _keeps_input(context: Context, node: Node) -> None:
    """SiLU and average pools."""
    x = node.inputs[0]
    context.output(node)
    context.record(node, [x], [context.machine.tensors[x]], lambda _: [context.gradient(x)])


def _max_pool(context: Context, node: Node) -> None:
    x = node.inputs[0]
    machine = context.machine
    context.output(node)
    indices = machine.new(prod(context.shape(node.outputs[0]).dims) * 8, "activations")
    context.record(node, [x], [machine.tensors[x], indices], lambda _: [context.gradient(x)])
    machine.release(indices)


def _mean(context: Context, node: Node) -> None:
    x = node.inputs[0]
    context.output(node)
    context.record(node, [x], [], lambda _: [context.gradient(x)])


def _concat(context: Context, node: Node) -> None:
    """Gradients are views of the whole one."""
    machine = context.machine
    context.output(node)

    def backward(gradient: Storage) -> list[Storage | None]:
        return [machine.hold(gradient) if name in context.needs_gradient else None for name in node.inputs]

    context.record(node, list(node.inputs), [], backward)


RULES: Mapping[str, Callable[[Context, Node], None]] = {
    "AveragePool": _keeps_input,
    "BatchNormalization": _batch_normalization,
    "Clip": _clamp,
    "Concat": _concat,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "GlobalAveragePool": _mean,
    "MaxPool": _max_pool,
    "Relu": _relu,
}

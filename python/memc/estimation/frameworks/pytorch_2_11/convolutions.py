# SPDX-License-Identifier: Apache-2.0
"""Convolutions, batch normalization, pools, and activations that run in place.

Saved tensors are those of PyTorch's `derivatives.yaml`; what else an op allocates was seen in recordings of its allocator. ONNX does not
say which ops ran in place: ReLU and ReLU6 are taken to where they may (as torchvision's models have them), an addition before them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Protocol

from ...eager import Storage
from ...layouts import contiguous
from ...onnx_graph import Node, TensorShape, spatial
from ...workspaces import Convolution
from .context import Context
from .reductions import sum_scratch
from .tensors import bytes_of_sum


def _convolution(context: Context, node: Node) -> None:
    """Operands whose rows do not lie one after another are copied for each of its products. Transposed ones copy the gradient once;
    depthwise ones, which are PyTorch's own in f32, find the gradient of weights first."""
    x, weight = node.inputs[:2]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    machine, found, out = context.machine, convolution_of(context, node), node.outputs[0]
    copied = context.copy_of_rows(x, machine.tensors[x])
    context.output(node)
    context.workspace("forward", found)
    context.give_up(copied)
    tensors, kept = machine.tensors, machine.tensors[x]
    once = found.transposed or found.depthwise

    def of_x(gradient: Storage) -> Storage | None:
        result = context.gradient(x)
        if result is not None:
            given = None if once else context.copy_of_rows(out, gradient)
            context.workspace("input", found)
            context.give_up(given)
        return result

    def of_weight(gradient: Storage) -> Storage | None:
        rows = [context.copy_of_rows(x, kept)] + ([] if once else [context.copy_of_rows(out, gradient)])
        result = context.gradient(weight)
        context.workspace("weight", found)
        context.give_up(*rows)
        return result

    def backward(gradient: Storage) -> list[Storage | None]:
        given = context.copy_of_rows(out, gradient) if once else None
        if found.depthwise:
            grad_weight, grad_x = of_weight(gradient), of_x(gradient)
        else:
            grad_x, grad_weight = of_x(gradient), of_weight(gradient)
        context.give_up(given)
        results = [grad_x, grad_weight]
        if bias:
            results.append(context.gradient(bias))
            dims = context.dims(out)
            axes = [axis for axis in range(len(dims)) if axis != 1]
            bytes_of_sum(context, sum_scratch(dims, axes, gradient.strides))
        return results

    context.record(node, [x, weight, *([bias] if bias else [])], [kept, tensors[weight]], backward)


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

    def backward(gradient: Storage) -> list[Storage | None]:
        result = context.gradient(x)
        context.give_up(context.copy_of_rows(node.outputs[0], gradient))
        return [result]

    context.record(node, [x], [machine.tensors[x], indices], backward)
    machine.release(indices)


def _mean(context: Context, node: Node) -> None:
    x = node.inputs[0]
    out = context.output(node)
    if not context.channels_last or not context.flows(x):
        context.record(node, [x], [], lambda _: [context.gradient(x)])
        return
    inner = f"{node.outputs[0]} as it is laid out"  # Its gradient is copied into that layout.
    context.shapes[inner] = context.shape(node.outputs[0])
    context.record(replace(node, outputs=(inner,)), [x], [], lambda _: [context.gradient(x)])
    context.record(node, [inner], [], lambda _: [context.machine.new(out.nbytes, "temporaries")])


def _concat(context: Context, node: Node) -> None:
    """Gradients are views of the whole one."""
    machine, out = context.machine, node.outputs[0]
    context.output(node)

    def backward(gradient: Storage) -> list[Storage | None]:
        strides = gradient.strides or context.layout(context.dims(out)) or contiguous(context.dims(out))
        return [
            machine.view(gradient, strides, context.shape(name).nbytes) if name in context.needs_gradient else None
            for name in node.inputs
        ]

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

# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.11, eager, on CUDA in f32: the ops of convolutional networks.

Saved tensors are those of its `derivatives.yaml`; what else an op allocates was seen in recordings of its allocator. ONNX does not
say which ops ran in place: ReLU and ReLU6 are taken to where they may (as torchvision's models have them), an addition before them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from ..eager import Machine, Storage
from ..onnx_graph import Node, OnnxGraph, TensorShape, spatial
from ..workspaces import Convolution, Workspaces

CUBLAS_WORKSPACES = {"main": (32 * 2**20, 2**20), "backward": (32 * 2**20,)}
"""Bytes that the first matrix product of each thread takes for good on compute capability 9.0: for the handle of cuBLAS, and for
cuBLASLt, which adds the bias of linear layers."""


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer allocates."""

    states: int = 0
    """Tensors like the parameter that it keeps for each."""
    lists: int = 0
    """Temporaries of all parameters at once in a step, as multi-tensor forms make them."""
    singles: int = 0
    """Temporaries of one parameter at a time."""
    counters: bool = False
    """Whether the number of steps is kept on the device, in 4 bytes for each parameter."""
    early: bool = False
    """Whether states are made before the first step."""


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(),
    "momentum": Optimizer(states=1),
    "adam": Optimizer(states=2, lists=1),
    "adam-fused": Optimizer(states=2, counters=True),
    "adam-loop": Optimizer(states=2, singles=2),
    "adamw": Optimizer(states=2, lists=1),
    "adamw-fused": Optimizer(states=2, counters=True),
    "adamw-loop": Optimizer(states=2, singles=2),
    "rmsprop": Optimizer(states=1, lists=1),
    "adagrad": Optimizer(states=1, lists=2, early=True),
}
"""By name; in their multi-tensor (foreach) form, the default on CUDA, unless the name says otherwise."""


@dataclass
class Context:
    """What the rules need to know of the run."""

    machine: Machine
    graph: OnnxGraph
    workspaces: Workspaces
    training: bool
    needs_gradient: set[str]
    """Tensors through which gradients flow."""
    handles: set[str]
    """Threads that have a cuBLAS handle."""
    in_place: Mapping[str, str]
    """By output: which operand the op writes over."""

    def shape(self, name: str) -> TensorShape:
        """Of a tensor."""
        return self.graph.shapes[name]

    def output(self, node: Node, category: str = "activations") -> Storage:
        """A new block for the node's first output."""
        storage = self.machine.new(self.shape(node.outputs[0]).nbytes, category)
        self.machine.bind(node.outputs[0], storage)
        return storage

    def result(self, node: Node) -> None:
        """The output in the place of an operand, where the op runs in place, or in a new block."""
        source = self.in_place.get(node.outputs[0])
        if source is None:
            self.output(node)
        else:
            self.alias(node, source)

    def alias(self, node: Node, source: str) -> None:
        """The node's output has the bytes of its input."""
        self.machine.bind(node.outputs[0], self.machine.hold(self.machine.tensors[source]))

    def gradient(self, name: str) -> Storage | None:
        """A new block for a gradient, if the tensor needs one."""
        if name not in self.needs_gradient:
            return None
        category = "gradients" if name in self.graph.parameters else "temporaries"
        return self.machine.new(self.shape(name).nbytes, category)

    def cublas(self, thread: str) -> None:
        """A thread's first matrix product takes the workspace of its handle, for good."""
        if thread not in self.handles:
            self.handles.add(thread)
            for nbytes in CUBLAS_WORKSPACES[thread]:
                self.machine.new(nbytes, "workspaces")

    def record(
        self,
        node: Node,
        inputs: Sequence[str],
        saved: Sequence[Storage],
        backward: Callable[[Storage], list[Storage | None]],
    ) -> None:
        """On the tape, if a gradient flows through the node."""
        if not self.training or not any(name in self.needs_gradient for name in inputs):
            return
        self.needs_gradient.add(node.outputs[0])
        self.machine.record(node.outputs[0], inputs, saved, backward)


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


def _sigmoid(context: Context, node: Node) -> None:
    x = node.inputs[0]
    out = context.output(node)
    context.record(node, [x], [out], lambda _: [context.gradient(x)])


def _keeps_input(context: Context, node: Node) -> None:
    """SiLU and average pools."""
    x = node.inputs[0]
    context.output(node)
    context.record(node, [x], [context.machine.tensors[x]], lambda _: [context.gradient(x)])


def _add(context: Context, node: Node) -> None:
    """The gradient is that of each operand, or is summed to its size."""
    machine = context.machine
    context.result(node)
    whole = context.shape(node.outputs[0]).nbytes

    def backward(gradient: Storage) -> list[Storage | None]:
        found: list[Storage | None] = []
        for name in node.inputs:
            same = name in context.needs_gradient and context.shape(name).nbytes == whole
            found.append(machine.hold(gradient) if same else context.gradient(name))
        return found

    context.record(node, list(node.inputs), [], backward)


def _multiply(context: Context, node: Node) -> None:
    """Each gradient is a product; one of a smaller operand is summed from a product of the whole size."""
    machine = context.machine
    context.output(node)
    whole = context.shape(node.outputs[0]).nbytes

    def backward(_: Storage) -> list[Storage | None]:
        found: list[Storage | None] = []
        for name in node.inputs:
            if name in context.needs_gradient and context.shape(name).nbytes != whole:
                product = machine.new(whole, "temporaries")
                found.append(context.gradient(name))
                machine.release(product)
            else:
                found.append(context.gradient(name))
        return found

    context.record(node, list(node.inputs), [machine.tensors[name] for name in node.inputs], backward)


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


def _view(context: Context, node: Node) -> None:
    x = node.inputs[0]
    context.alias(node, x)
    context.record(node, [x], [], lambda gradient: [context.machine.hold(gradient)])


def _concat(context: Context, node: Node) -> None:
    """Gradients are views of the whole one."""
    machine = context.machine
    context.output(node)

    def backward(gradient: Storage) -> list[Storage | None]:
        return [machine.hold(gradient) if name in context.needs_gradient else None for name in node.inputs]

    context.record(node, list(node.inputs), [], backward)


def _dropout(context: Context, node: Node) -> None:
    x = node.inputs[0]
    machine = context.machine
    if not context.training:
        return context.alias(node, x)
    context.output(node)
    mask = machine.new(prod(context.shape(x).dims), "activations")
    context.record(node, [x], [mask], lambda _: [context.gradient(x)])
    machine.release(mask)
    return None


def _linear(context: Context, node: Node) -> None:
    x, weight = node.inputs[:2]
    machine = context.machine
    context.output(node)
    context.cublas("main")
    tensors = machine.tensors

    def backward(_: Storage) -> list[Storage | None]:
        grad_x = context.gradient(x)
        context.cublas("backward")
        return [grad_x, *(context.gradient(name) for name in node.inputs[1:])]

    context.record(node, list(node.inputs), [tensors[x], tensors[weight]], backward)


RULES: Mapping[str, Callable[[Context, Node], None]] = {
    "Add": _add,
    "AveragePool": _keeps_input,
    "BatchNormalization": _batch_normalization,
    "Clip": _clamp,
    "Concat": _concat,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Dropout": _dropout,
    "Flatten": _view,
    "Gemm": _linear,
    "GlobalAveragePool": _mean,
    "Identity": _view,
    "MaxPool": _max_pool,
    "Mul": _multiply,
    "ReduceMean": _mean,
    "Relu": _relu,
    "Reshape": _view,
    "Sigmoid": _sigmoid,
    "Silu": _keeps_input,
}
"""By the ops of ONNX, and of `Silu`, which ONNX has as two."""

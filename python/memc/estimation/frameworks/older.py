# SPDX-License-Identifier: Apache-2.0
"""The ops of frameworks of 2019, where they differ from PyTorch 2.11's: nothing was measured here, the sources are DNNMem
(Gao et al. 2020) and the frameworks' own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..eager import Storage
from ..onnx_graph import Node
from .pytorch_2_11 import RULES as PYTORCH_RULES
from .pytorch_2_11 import Context

Rules = Mapping[str, Callable[[Context, Node], None]]

MIB = 2**20
CONTEXT = 379 * MIB
"""The CUDA context of TensorFlow 1.12 on a P40, which DNNMem's table 8 has as 0.37 GB; taken for the other frameworks, too."""
WORKSPACE_LIMIT = 2**32
"""DNNMem's table 1 has 4 GB; it is TensorFlow's default, too."""


def in_place(context: Context, node: Node) -> None:
    """The result has the place of the operand; what the backward pass needs of it is the result."""
    x = node.inputs[0]
    context.alias(node, x)
    out = context.machine.tensors[node.outputs[0]]
    flowing = [name for name in node.inputs[:3] if context.flows(name)]
    context.record(node, flowing, [out], lambda _: [context.gradient(name) for name in flowing])


def both_kept(context: Context, node: Node) -> None:
    """Operand and result are kept, and no indices."""
    x = node.inputs[0]
    out = context.output(node)
    context.record(node, [x], [context.machine.tensors[x], out], lambda _: [context.gradient(x)])


def float_mask(context: Context, node: Node) -> None:
    """Dropout with a mask of floats."""
    x, machine = node.inputs[0], context.machine
    if not context.training:
        return context.alias(node, x)
    mask = machine.new(context.shape(x).nbytes, "activations")
    context.output(node)
    context.record(
        Node(node.op, node.name, node.inputs, node.outputs[:1], {}), [x], [mask], lambda _: [context.gradient(x)]
    )
    machine.release(mask)
    return None


def two_masks(context: Context, node: Node) -> None:
    """Dropout as a quotient times a mask of floats, both of which its gradient needs."""
    x, machine = node.inputs[0], context.machine
    if not context.training:
        return context.alias(node, x)
    kept = [machine.new(context.shape(x).nbytes, "activations") for _ in range(2)]
    context.output(node)
    one = Node(node.op, node.name, node.inputs, node.outputs[:1], {})
    context.record(one, [x], kept, lambda _: [context.gradient(x)])
    for storage in kept:
        machine.release(storage)
    return None


def copied(context: Context, node: Node) -> None:
    """A transpose, which is no view."""
    x = node.inputs[0]
    context.output(node)
    context.record(node, [x], [], lambda _: [context.gradient(x)])


def with_copies(context: Context, node: Node) -> None:
    """Two temporaries beside a convolution, of the size of its weights and its result."""
    machine = context.machine
    made = [machine.new(context.shape(name).nbytes, "temporaries") for name in (node.inputs[1], node.outputs[0])]
    PYTORCH_RULES["Conv"](context, node)
    for storage in made:
        machine.release(storage)


def lstm_of(kept: int, sums: bool = False) -> Callable[[Context, Node], None]:
    """A layer, unrolled, that keeps so many vectors of the hidden size for each step and item, beside its outputs. Each step has blocks of
    its own. `sums`: gradients of the weights are added up over steps in blocks beside their places.
    """

    def lstm(context: Context, node: Node) -> None:
        x, *weights = (name for name in node.inputs if name)
        machine = context.machine
        steps, batch = context.dims(x)[:2]
        unit = steps * batch * int(node.attributes["hidden_size"]) * 4
        for name in filter(None, node.outputs):
            count = steps if name == node.outputs[0] else 1
            machine.bind(name, machine.listed(context.shape(name).nbytes, count, "activations"))
        flowing = [name for name in (x, *weights) if context.flows(name)]
        gates = [machine.listed(unit, steps, "activations") for _ in range(kept)]
        out = machine.tensors[node.outputs[0]]

        def backward(_: Storage) -> list[Storage | None]:
            blocks = [machine.new(context.shape(name).nbytes, "temporaries") for name in weights if sums]
            before = [machine.listed(context.shape(x).nbytes, steps, "temporaries")] if x in flowing else []
            found = [*before, *(context.gradient(name) for name in flowing if name != x)]
            for storage in blocks:
                machine.release(storage)
            return found

        context.record(Node(node.op, node.name, node.inputs, node.outputs[:1], {}), flowing, [*gates, out], backward)
        for storage in gates:
            machine.release(storage)

    return lstm

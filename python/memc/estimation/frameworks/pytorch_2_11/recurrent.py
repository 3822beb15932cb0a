# SPDX-License-Identifier: Apache-2.0
"""LSTM layers as cuDNN runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from ...eager import Storage
from ...onnx_graph import Node
from .context import Context

KEPT = 5
"""Vectors of the hidden size that cuDNN keeps for each step and item: four gates and the cell."""


def lstm(context: Context, node: Node) -> None:
    """One layer: the outputs of all steps, the last states, and what cuDNN keeps. In the backward pass the gradients of all weights are
    one block, and cuDNN's workspace is about that of the gates."""
    x, *parameters = (name for name in node.inputs if name)
    weights = [name for name in parameters if name in context.graph.parameters]
    machine = context.machine
    steps, batch = context.dims(x)[:2]
    hidden = int(node.attributes["hidden_size"])
    unit = steps * batch * hidden * context.shape(x).itemsize
    outputs = [name for name in node.outputs if name]
    for name in outputs:
        machine.bind(name, machine.new(context.shape(name).nbytes, "activations"))
    machine.scratch(_workspace(unit, weights, context))
    flowing = [name for name in (x, *weights) if context.flows(name)]
    if not flowing:
        return
    kept = machine.new(KEPT * unit, "activations")

    def backward(_: Storage) -> list[Storage | None]:
        found: list[Storage | None] = [context.gradient(x)] if x in flowing else []
        machine.scratch(_workspace(unit, weights, context))
        whole = machine.new(sum(context.shape(name).nbytes for name in weights), "gradients")
        parts = [machine.view(whole, None, context.shape(name).nbytes) for name in weights]
        machine.release(whole)
        machine.scratch(_workspace(unit, weights, context))
        return [*found, *parts]

    saved = [machine.tensors[x], machine.tensors[outputs[0]], kept, *(machine.tensors[name] for name in weights)]
    context.record(Node(node.op, node.name, node.inputs, tuple(outputs[:1]), {}), flowing, saved, backward)
    machine.release(kept)


def _workspace(unit: int, weights: list[str], context: Context) -> int:
    """Gates of all steps, and the weights in another order."""
    return 4 * unit + sum(prod(context.dims(name)) * context.shape(name).itemsize for name in weights)


RULES: Mapping[str, Callable[[Context, Node], None]] = {"LSTM": lstm}

# SPDX-License-Identifier: Apache-2.0
"""LSTM modules as cuDNN runs them, all layers in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...eager import Storage
from ...onnx_graph import Node
from .context import Context

KEPT = 5
"""Vectors of the hidden size that cuDNN keeps for each step, item and layer: four gates and the cell; and outputs between layers."""
GATES = 4
STEPS = 8
"""Steps for which the workspace has gates are a multiple of it."""


def workspace_of(matrices: int, steps: int, row: int, layers: int) -> int:
    """A copy of the matrices, and gates of all layers and steps; in bytes, with those of all items of a step as `row`."""
    return matrices + -(-steps // STEPS) * STEPS * row * layers * GATES + 512


def lstm(context: Context, node: Node, workspace_rule: Callable[[int, int, int, int], int] = workspace_of) -> None:
    """States of zeros, the outputs of all steps, the last states, and what cuDNN keeps. In the backward pass the gradients of all weights
    are one block. Operands whose steps do not lie one after another, as with the batch first, are copied for each of cuDNN's calls."""
    x, *parameters = (name for name in node.inputs if name)
    weights = [name for name in parameters if name in context.graph.parameters]
    machine, out = context.machine, node.outputs[0]
    steps, batch = context.dims(x)[:2]
    layers, size = int(node.attributes.get("layers", 1)), context.shape(x).itemsize
    row = context.dims(out)[-1] * int(context.dims(out)[1] if len(context.dims(out)) == 4 else 1) * batch * size
    matrices = sum(context.shape(name).nbytes for name in weights if len(context.dims(name)) > 1)
    workspace = workspace_rule(matrices, steps, row, layers)
    flowing = [name for name in (x, *weights) if context.flows(name)]

    def states(category: str) -> list[Storage]:
        return [machine.new(layers * row, category) for _ in range(2)]

    given = states("activations")
    kept = machine.tensors[x]
    copied = context.copy_of_rows(x, kept)
    context.output(node)
    last = states("activations")
    space = machine.new(workspace, "workspaces")
    reserve = machine.new(steps * row * (KEPT * layers + layers - 1) + 256, "activations") if flowing else None
    context.give_up(space, copied, *last[::-1])

    def backward(gradient: Storage) -> list[Storage | None]:
        zeros = states("temporaries")
        copies = [context.copy_of_rows(x, kept), context.copy_of_rows(out, gradient)]
        found = machine.new(context.shape(x).nbytes, "temporaries")
        ends = states("temporaries")
        machine.scratch(workspace)
        context.give_up(*copies[::-1])
        again = context.copy_of_rows(x, kept)
        whole = machine.new(sum(context.shape(name).nbytes for name in weights), "gradients")
        parts = [machine.view(whole, None, context.shape(name).nbytes) for name in weights]
        machine.release(whole)
        machine.scratch(workspace)
        context.give_up(again, *zeros[::-1], *ends)
        if x not in flowing:
            machine.release(found)
        return [found, *parts] if x in flowing else list(parts)

    saved = [*given[::-1], kept, *(machine.tensors[name] for name in weights), machine.tensors[out]]
    one = Node(node.op, node.name, node.inputs, node.outputs[:1], {})
    context.record(one, flowing, [*saved, *([reserve] if reserve else [])], backward)
    context.give_up(*given, reserve)


RULES: Mapping[str, Callable[[Context, Node], None]] = {"LSTM": lstm}

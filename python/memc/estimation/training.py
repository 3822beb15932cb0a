# SPDX-License-Identifier: Apache-2.0
"""The events of a training or inference loop over a model, by a framework model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from math import prod

from memc.ir.errors import UnsupportedError

from .eager import Machine, Storage
from .events import Events, Origin
from .frameworks import Framework
from .frameworks.pytorch_2_11 import OPTIMIZERS, Context
from .frameworks.pytorch_2_11.precision import autocast, cast_to, end_region, typed_shapes
from .onnx_graph import Node, OnnxGraph
from .recognize import eager_graph
from .workspaces import Workspaces

STEPS = 3


def loop_events(
    source: str,
    graph: OnnxGraph,
    framework: Framework,
    optimizer: str | None,
    workspaces: Workspaces,
    zero_grad: str = "first",
    steps: int = STEPS,
    *,
    precision: str = "f32",
    accumulate: int = 1,
) -> Events:
    """The events from the start of the process: the model is moved to the device, then `steps` steps are run, each of `accumulate`
    batches, of inference without an optimizer. Raises UnsupportedError for an op that the framework model lacks."""
    graph = eager_graph(graph)
    _require_rules(source, graph, framework)
    return _Loop(graph, framework, optimizer, workspaces, zero_grad, precision, accumulate).run(steps)


def _require_rules(source: str, graph: OnnxGraph, framework: Framework) -> None:
    for node in graph.nodes:
        if node.op not in framework.rules:
            raise UnsupportedError(
                f"{source}: node `{node.name}` ({node.op}): the model of {framework.name} has no such op yet; "
                "record the job's allocations on a GPU, or leave it out"
            )


def _leaving(graph: OnnxGraph) -> Mapping[int, Sequence[str]]:
    """By node: the tensors whose names go out of scope after it.

    What a module is given is held by its caller until it returns, however deep inside it is read last.
    """
    maker: dict[str, tuple[str, ...]] = {}
    end: dict[tuple[str, ...], int] = {}
    last: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        scopes = node.scopes
        for depth in range(1, len(scopes) + 1):
            end[scopes[:depth]] = at
        for name in node.outputs:
            maker[name] = scopes
            last[name] = at
    for at, node in enumerate(graph.nodes):
        scopes = node.scopes
        for name in node.inputs:
            outside = maker.get(name, ())
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(outside, scopes)))
            until = end.get(scopes[: common + 1], at) if common < len(scopes) else at
            last[name] = max(last.get(name, at), at, until)
    leaving: dict[int, list[str]] = {}
    for name, at in last.items():
        leaving.setdefault(at, []).append(name)
    return leaving


def _in_place(graph: OnnxGraph, readers: Mapping[str, Sequence[Node]]) -> Mapping[str, str]:
    """By output: which operand an op writes over. ReLU and ReLU6 do, and additions before them, where nobody else reads the operand
    and nothing keeps it for the backward pass."""
    maker = {name: node.op for node in graph.nodes for name in node.outputs}
    keepers = {"Relu", "Clip", "Sigmoid", "Silu"}

    def free(name: str, out: str) -> bool:
        alone = len(readers.get(name, ())) == 1 and maker.get(name, "Relu") not in keepers
        return alone and name not in graph.outputs and graph.shapes[name] == graph.shapes[out]

    found: dict[str, str] = {}
    for node in graph.nodes:
        after = [reader.op for reader in readers.get(node.outputs[0], ())] if node.outputs else []
        if node.op in ("Relu", "Clip") or (node.op == "Add" and after in (["Relu"], ["Clip"])):
            operands = node.inputs if node.op == "Add" else node.inputs[:1]
            chosen = next((name for name in operands if free(name, node.outputs[0])), None)
            if chosen is not None:
                found[node.outputs[0]] = chosen
    return found


class _Loop:
    """A job: parameters, and steps one after another."""

    def __init__(
        self,
        graph: OnnxGraph,
        framework: Framework,
        optimizer: str | None,
        workspaces: Workspaces,
        zero_grad: str,
        precision: str,
        accumulate: int,
    ) -> None:
        self.graph, self.optimizer, self.zero_grad = graph, optimizer, zero_grad
        self.rules = framework.rules
        self.autocast, self.scaled, self.accumulate = precision.startswith("amp-"), precision == "amp-f16", accumulate
        shapes = typed_shapes(graph.shapes, precision)
        self.machine = Machine(
            lambda name: shapes[name].nbytes, applies_at_once=framework.applies_at_once and optimizer == "sgd"
        )
        readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        self.leaving = _leaving(graph)
        in_place = _in_place(graph, readers)
        statistics = {name for node in graph.nodes if node.op == "BatchNormalization" for name in node.inputs[3:5]}
        self.trained = tuple(name for name in graph.parameters if name not in statistics)
        training = optimizer is not None
        flows = set(self.trained) if training else set()
        self.context = Context(
            self.machine, graph, workspaces, training, flows, in_place, shapes, framework.matrix_workspaces
        )
        self.states: dict[str, list[Storage]] = {}

    def run(self, steps: int) -> Events:
        """All events."""
        self.machine.origin = Origin("to", category="weights")
        self._load()
        if self.optimizer is not None and OPTIMIZERS[self.optimizer].early:
            self.machine.origin = Origin("optimizer", category="optimizer")
            self._make_states(self.trained)
        for step in range(steps):
            self._step(step)
        return self.machine.events.events()

    def _load(self) -> None:
        """Each module's parameters and then its buffers; batch normalization counts its batches in one of 8 bytes."""
        loaded: set[str] = set()
        recurrent = [node for node in self.graph.nodes if node.op == "LSTM"]
        last = {node.scopes: node for node in recurrent}
        stored = {*self.graph.parameters, *self.graph.buffers}
        for node in self.graph.nodes:
            for name in node.inputs:
                if name in stored and name not in loaded:
                    loaded.add(name)
                    self.machine.bind(name, self.machine.new(self.context.shape(name).nbytes, "weights"))
            if node.op == "Constant":
                loaded.update(node.outputs)
                self.rules[node.op](self.context, node)
            if node.op == "BatchNormalization":
                self.machine.new(8, "weights")
            if last.get(node.scopes) is node:
                self._flatten([name for each in recurrent if each.scopes == node.scopes for name in each.inputs[1:]])

    def _flatten(self, names: Sequence[str]) -> None:
        """The weights of a recurrent module go into one block."""
        machine = self.machine
        whole = machine.new(sum(self.context.shape(name).nbytes for name in names), "weights")
        for name in names:
            machine.drop(name)
            machine.bind(name, machine.view(whole, None, self.context.shape(name).nbytes))
        machine.release(whole)

    def _step(self, step: int) -> None:
        machine = self.machine
        if self.zero_grad == "first":
            self._drop_gradients()
        for _ in range(self.accumulate):
            self._batch(step)
        if self.optimizer is not None:
            machine.origin = Origin("optimizer", "", "optimizer", step)
            self._update()
        if self.zero_grad == "end":
            self._drop_gradients()

    def _batch(self, step: int) -> None:
        """Forward and backward pass of a batch."""
        machine = self.machine
        machine.origin = Origin("input", "", "forward", step)
        for name in self.graph.inputs:
            machine.bind(name, machine.new(self.context.shape(name).nbytes, "inputs"))
        labels = machine.new(self._labels(), "inputs")
        self._forward(step)
        self._loss(self.graph.outputs[0], step)
        for name in self.graph.inputs:
            machine.drop(name)
        machine.release(labels)

    def _forward(self, step: int) -> None:
        machine, outputs = self.machine, set(self.graph.outputs)
        constants = {name for node in self.graph.nodes if node.op == "Constant" for name in node.outputs}
        kept = {*self.graph.parameters, *self.graph.buffers, *self.graph.inputs, *outputs, *constants}
        for at, node in enumerate(self.graph.nodes):
            if node.op == "Constant":
                continue
            machine.origin = Origin(node.op, node.name, "forward", step)
            casts: list[str] = []
            if self.autocast:
                node, casts = autocast(self.context, node)
            self.rules[node.op](self.context, node)
            for name in casts:
                machine.drop(name)
            for name in self.leaving.get(at, ()):
                if name not in kept:
                    machine.drop(name)

    def _loss(self, output: str, step: int) -> None:
        """Cross entropy of the first output, and the backward pass."""
        machine, context = self.machine, self.context
        machine.origin = Origin("cross_entropy", "", "forward", step)
        wide = output
        if self.autocast or self._of_tokens():
            wide = cast_to(context, output, 4)
        shape = context.shape(wide)
        shifted = self._shifted_labels()
        log_softmax = machine.new(shape.nbytes, "activations")
        total, loss = machine.new(4, "activations"), machine.new(4, "activations")
        if output in context.needs_gradient:

            def backward(_: Storage) -> list[Storage | None]:
                picked = machine.new(shape.nbytes, "temporaries")
                gradient = machine.new(shape.nbytes, "temporaries")
                machine.release(picked)
                return [gradient]

            machine.record(["loss"], [wide], [log_softmax, total, *shifted], backward)
        machine.release(log_softmax)
        machine.release(total)
        for storage in shifted:
            machine.release(storage)
        for name in {*self.graph.outputs, wide}:
            machine.drop(name)
        end_region(context)
        if output in context.needs_gradient:
            machine.run_backward("loss", frozenset(self.trained))
        machine.release(loss)

    def _of_tokens(self) -> bool:
        """Whether the first output has a distribution over the last axis for each token of an input."""
        dims = self.graph.shapes[self.graph.outputs[0]].dims
        inputs = (self.graph.shapes[name] for name in self.graph.inputs)
        return len(dims) == 3 and any(not each.floating and each.dims == dims[:2] for each in inputs)

    def _labels(self) -> int:
        """Bytes of class numbers: one for each vector of the first output along its second axis, or its last for tokens."""
        dims = self.graph.shapes[self.graph.outputs[0]].dims
        axis = -1 if self._of_tokens() else 1
        classes = dims[axis] if len(dims) > 1 else 1
        return prod(dims) // max(classes, 1) * 8

    def _shifted_labels(self) -> list[Storage]:
        """Labels of tokens, each of the next one, with one appended."""
        if not self._of_tokens():
            return []
        rows, length = self.graph.shapes[self.graph.outputs[0]].dims[:2]
        padded = self.machine.new(rows * (length + 1) * 8, "temporaries")
        shifted = self.machine.new(rows * length * 8, "temporaries")
        self.machine.release(padded)
        return [shifted]

    def _drop_gradients(self) -> None:
        for name in self.trained:
            if name in self.machine.gradients:
                self.machine.release(self.machine.gradients.pop(name))

    def _update(self) -> None:
        assert self.optimizer is not None
        machine, optimizer = self.machine, OPTIMIZERS[self.optimizer]
        updated = [name for name in self.trained if name in machine.gradients]
        self._make_states(updated)
        lists = [
            machine.new(self.context.shape(name).nbytes, "temporaries")
            for _ in range(optimizer.lists)
            for name in updated
        ]
        for storage in lists:
            machine.release(storage)
        last: Storage | None = None
        for name in updated if optimizer.singles else ():
            made = [machine.new(self.context.shape(name).nbytes, "temporaries") for _ in range(optimizer.singles)]
            for storage in made[:-1]:
                machine.release(storage)
            if last is not None:  # The variable of the loop.
                machine.release(last)
            last = made[-1]
        if last is not None:
            machine.release(last)

    def _make_states(self, names: Sequence[str]) -> None:
        assert self.optimizer is not None
        optimizer = OPTIMIZERS[self.optimizer]
        for name in names:
            if name in self.states:
                continue
            nbytes = self.context.shape(name).nbytes
            sizes = [4] * optimizer.counters + [nbytes] * optimizer.states
            self.states[name] = [self.machine.new(each, "optimizer") for each in sizes]

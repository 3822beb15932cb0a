# SPDX-License-Identifier: Apache-2.0
"""The events of a training or inference loop over a model, by a framework model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from memc.ir.errors import UnsupportedError

from .checkpoints import Segment, segments
from .eager import Machine, Storage
from .events import Events, Origin
from .frameworks import Framework
from .frameworks.pytorch_2_11 import OPTIMIZERS, Context
from .frameworks.pytorch_2_11.precision import autocast, cast_to, end_region, typed_shapes
from .lifetimes import in_place_of
from .module_order import moved, registered
from .onnx_graph import Node, OnnxGraph
from .readings import LoopShape, Reading, readings
from .recognize import eager_graph
from .workspaces import Workspaces


def loop_events(
    source: str, graph: OnnxGraph, framework: Framework, shape: LoopShape, workspaces: Workspaces
) -> tuple[Events, ...]:
    """The events from the start of the process: the model is moved to the device, then steps are run, each of forward and backward
    passes and an update, or of inference without an optimizer.

    What is not known has several readings, and each its events, see `readings`. Raises UnsupportedError for an op that the framework
    model lacks.
    """
    graph = eager_graph(graph, framework.names)
    _require_rules(source, graph, framework)
    found = {} if shape.checkpoint is None else segments(source, graph, shape.checkpoint)
    ways = readings(graph, framework, shape, workspaces)
    return tuple(_Loop(graph, framework, shape, each, found).run() for each in ways)


def _require_rules(source: str, graph: OnnxGraph, framework: Framework) -> None:
    for node in graph.nodes:
        if node.op not in framework.rules:
            raise UnsupportedError(
                f"{source}: node `{node.name}` ({node.op}): the model of {framework.name} has no such op yet; "
                "record the job's allocations on a GPU, or leave it out"
            )


class _Loop:
    """A job: parameters, and steps one after another."""

    def __init__(
        self,
        graph: OnnxGraph,
        framework: Framework,
        shape: LoopShape,
        reading: Reading,
        checkpoints: Mapping[int, Segment],
    ) -> None:
        self.graph, self.shape, self.optimizer = graph, shape, shape.optimizer
        self.rules, self.leaving, self.segments = framework.rules, reading.names, checkpoints
        self.skipped, self.bound = reading.skipped, framework.binds_gradients
        self.autocast = shape.precision.startswith("amp-")
        training = self.optimizer is not None
        shapes = typed_shapes(graph.shapes, shape.precision)
        at_once = framework.applies_at_once and self.optimizer == "sgd"
        self.machine = Machine(lambda name: shapes[name].nbytes, applies_at_once=at_once)
        readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        constants = {name for node in graph.nodes if node.op == "Constant" for name in node.outputs}
        self.kept = {*graph.parameters, *graph.buffers, *graph.inputs, *graph.outputs, *constants}
        statistics = {name for node in graph.nodes if node.op == "BatchNormalization" for name in node.inputs[3:5]}
        self.trained = tuple(name for name in graph.parameters if name not in statistics)
        self.context = Context(
            self.machine,
            graph,
            replace(reading.workspaces, tried=set()),
            training,
            set(self.trained) if training else set(),
            in_place_of(graph, readers),
            shapes,
            framework.matrix_workspaces,
            shape.channels_last,
            keeps_workspace=framework.keeps_workspace,
        )
        self.states: dict[str, list[Storage]] = {}
        self.variables: list[Storage] = []
        """Of the step: inputs, labels and loss."""

    def run(self) -> Events:
        """All events."""
        self.machine.origin = Origin("to", category="weights")
        self._load()
        if self.optimizer is not None and OPTIMIZERS[self.optimizer].early:
            self.machine.origin = Origin("optimizer", category="optimizer")
            self._make_states(self.trained)
        for step in range(self.shape.steps + self.skipped):
            self._step(step)
        return self.machine.events.events()

    def _load(self) -> None:
        """Each module's parameters and then its buffers; batch normalization counts its batches in one of 8 bytes."""
        recurrent: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            if node.op == "LSTM":
                recurrent.setdefault("/".join(node.scopes), []).extend(node.inputs[1:])
        flattened = {names[-1]: names for names in recurrent.values()}
        counted = {node.inputs[4] for node in self.graph.nodes if node.op == "BatchNormalization"}
        read = dict.fromkeys(name for node in self.graph.nodes for name in node.inputs)
        buffers = [name for name in read if name in self.graph.buffers]
        for name in moved(registered([*self.graph.parameters, *buffers], self.graph.stored)):
            self.machine.bind(name, self.machine.new(self.context.shape(name).nbytes, "weights"))
            if name in counted:
                self.machine.new(8, "weights")
            if name in flattened:
                self._flatten(flattened[name])
        for node in self.graph.nodes:
            if node.op == "Constant":
                self.rules[node.op](self.context, node)
        for name in self.trained if self.bound and self.optimizer is not None else ():
            self.context.bound[name] = self.machine.new(self.context.shape(name).nbytes, "gradients")
            self.machine.kept[name] = self.machine.hold(self.context.bound[name])
        images = [name for name in self.machine.tensors if len(self.context.dims(name)) == 4]
        for name in images if self.shape.channels_last else ():
            self.machine.tensors[name] = self._in_layout(self.machine.tensors[name], "weights")

    def _in_layout(self, storage: Storage, category: str) -> Storage:
        """The tensor, copied into another layout."""
        copy = self.machine.new(storage.nbytes, category)
        self.machine.release(storage)
        return copy

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
        if self.shape.zero_grad == "first":
            self._drop_gradients()
        for _ in range(self.shape.accumulate):
            self._batch(step)
        if self.optimizer is not None and step >= self.skipped:
            machine.origin = Origin("optimizer", "", "optimizer", step)
            self._update()
        if self.shape.zero_grad == "end":
            self._drop_gradients()
        self._give_up_batch()

    def _batch(self, step: int) -> None:
        """Forward and backward pass of a batch."""
        machine = self.machine
        machine.origin = Origin("input", "", "forward", step)
        inputs = [machine.new(self.context.shape(name).nbytes, "inputs") for name in self.graph.inputs]
        labels = machine.new(self._labels(), "inputs")
        for at, name in enumerate(self.graph.inputs):
            if self.shape.channels_last and len(self.context.dims(name)) == 4:
                inputs[at] = self._in_layout(inputs[at], "inputs")
                inputs[at].strides = self.context.layout(self.context.dims(name))
        before, self.variables = self.variables, [*inputs, labels]
        for storage in before[:-1]:
            machine.release(storage)
        for name, storage in zip(self.graph.inputs, inputs):
            machine.tensors[name] = storage
        self._forward(step)
        loss = self._loss(self.graph.outputs[0], step)
        for storage in before[-1:]:
            machine.release(storage)
        self.variables.append(loss)
        if self.optimizer is not None:
            self._backward()

    def _give_up_batch(self) -> None:
        """The variables of a step, which is a function: inputs, labels and loss."""
        for name in self.graph.inputs:
            del self.machine.tensors[name]
        for storage in self.variables:
            self.machine.release(storage)
        self.variables = []

    def _forward(self, step: int) -> None:
        at = 0
        while at < len(self.graph.nodes):
            segment = self.segments.get(at)
            if segment is None:
                self._run(at, at, "forward", step)
                at += 1
            else:
                self._checkpointed(segment, step)
                at = segment.last + 1

    def _run(self, first: int, last: int, phase: str, step: int) -> None:
        """Some nodes, one after another, and the end of names after each."""
        machine = self.machine
        for at in range(first, last + 1):
            node = self.graph.nodes[at]
            if node.op == "Constant":
                continue
            machine.origin = Origin(node.op, node.name, phase, step)
            casts: list[str] = []
            if self.autocast:
                node, casts = autocast(self.context, node)
            self.rules[node.op](self.context, node)
            for name in (*casts, *(name for name in self.leaving.get(at, ()) if name not in self.kept)):
                machine.drop(name)

    def _checkpointed(self, segment: Segment, step: int) -> None:
        """Keeps what the module reads, and recomputes the rest in the backward pass."""
        machine, context = self.machine, self.context
        held = [machine.hold(machine.tensors[name]) for name in segment.inputs]
        context.recording = False
        self._run(segment.first, segment.last, "forward", step)
        context.recording = True
        flowing = [name for name in segment.inputs if name in context.needs_gradient]
        outputs = [name for name in segment.outputs if context.shape(name).floating]
        context.needs_gradient.update(outputs)

        def backward(_: Storage) -> list[Storage | None]:
            given = dict(machine.given)
            outer, machine.tape = machine.tape, []
            rebound = [name for name in segment.inputs if name not in machine.tensors]
            for name, storage in zip(segment.inputs, held):
                if name in rebound:
                    machine.bind(name, machine.hold(storage))
            self._run(segment.first, segment.last, "backward", step)
            end_region(context)
            for name in (*segment.inside, *rebound):
                machine.drop(name)
            machine.gradients.update({name: machine.hold(storage) for name, storage in given.items() if storage})
            machine.unwind()
            machine.tape = outer
            return [machine.gradients.pop(name, None) for name in flowing]

        machine.record(outputs, flowing, held, backward)
        for storage in held:
            machine.release(storage)

    def _loss(self, output: str, step: int) -> Storage:
        """Cross entropy of the first output."""
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
                return [machine.new(shape.nbytes, "temporaries")]

            probabilities = f"{wide} in log_softmax"
            context.shapes[probabilities] = shape
            machine.record([probabilities], [wide], [log_softmax], backward)
            machine.record(["loss"], [probabilities], [log_softmax, *shifted, total], backward)
        machine.release(log_softmax)
        machine.release(total)
        for storage in shifted:
            machine.release(storage)
        for name in dict.fromkeys((*self.graph.outputs, wide)):
            machine.drop(name)
        end_region(context)
        return loss

    def _backward(self) -> None:
        if self.graph.outputs[0] in self.context.needs_gradient:
            self.machine.run_backward("loss", frozenset(self.trained))

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
        for name in () if self.bound else self.trained:
            if name in self.machine.kept:
                self.machine.release(self.machine.kept.pop(name))

    def _update(self) -> None:
        assert self.optimizer is not None
        machine, optimizer = self.machine, OPTIMIZERS[self.optimizer]
        updated = [name for name in self.trained if name in machine.kept]
        self._make_states(updated)
        lists = [
            machine.new(self.context.shape(name).nbytes, "temporaries")
            for _ in range(optimizer.lists)
            for name in updated
        ]
        for storage in reversed(lists):  # As lists give up their elements.
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

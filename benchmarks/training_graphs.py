# SPDX-License-Identifier: Apache-2.0
"""Training steps of transformers of any depth, as problems of operator order.

A step is forward, loss, backward, and an update of every weight, in the order a framework runs them: updates last.
Weights and the optimizer's moments are persistent: not counted, but an update waits for all that read the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memc.solvers.order import OrderProblem

ELEMENT = 4
"""Bytes: float32."""


@dataclass
class Graph:
    """Ops over tensors, which are numbers. Dependencies follow from reads and writes, in the order of the ops."""

    sizes: list[int] = field(default_factory=list)
    touches: list[list[int]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    storage: list[int | None] = field(default_factory=list)
    """Of each tensor: its number in `sizes`; None if it is persistent."""
    writer: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)

    def persistent(self) -> int:
        self.storage.append(None)
        return len(self.storage) - 1

    def tensor(self, nbytes: int) -> int:
        self.storage.append(len(self.sizes))
        self.sizes.append(nbytes)
        return len(self.storage) - 1

    def op(self, reads: Sequence[int], writes: Sequence[int]) -> None:
        """Adds an op that reads some tensors and writes others, which may be among those it reads."""
        op = len(self.touches)
        waits = {self.writer[t] for t in (*reads, *writes) if t in self.writer}
        for tensor in writes:
            waits.update(self.readers.pop(tensor, ()))
            self.writer[tensor] = op
        for tensor in set(reads).difference(writes):
            self.readers.setdefault(tensor, []).append(op)
        storages = (self.storage[t] for t in dict.fromkeys((*reads, *writes)))
        self.touches.append([s for s in storages if s is not None])
        self.after.append(sorted(waits))

    def new(self, reads: Sequence[int], elements: int) -> int:
        """Adds an op that makes a tensor."""
        result = self.tensor(elements * ELEMENT)
        self.op(reads, [result])
        return result


@dataclass
class Step:
    """Builds a training step. Each forward method queues what the backward pass has to do for it."""

    graph: Graph
    tokens: int
    width: int
    heads: int
    tape: list[Callable[[], None]] = field(default_factory=list)
    gradients: dict[int, int] = field(default_factory=dict)
    updates: list[tuple[int, int]] = field(default_factory=list)
    """Weights and their gradients."""

    @property
    def activation(self) -> int:
        return self.tokens * self.width

    def accumulate(self, tensor: int, gradient: int) -> None:
        if tensor in self.gradients:
            total = self.gradients[tensor]
            self.graph.op([total, gradient], [total])
        else:
            self.gradients[tensor] = gradient

    def linear(self, x: int, n_in: int, n_out: int) -> int:
        weight, bias = self.graph.persistent(), self.graph.persistent()
        result = self.graph.new([x, weight, bias], self.tokens * n_out)

        def backward() -> None:
            gradient = self.gradients.pop(result)
            self.accumulate(x, self.graph.new([gradient, weight], self.tokens * n_in))
            self.updates.append((weight, self.graph.new([gradient, x], n_in * n_out)))
            self.updates.append((bias, self.graph.new([gradient], n_out)))

        self.tape.append(backward)
        return result

    def pointwise(self, inputs: Sequence[int], elements: int, *, saves_result: bool) -> int:
        """An op of tensors of as many elements as its result, whose backward pass needs its inputs or its result."""
        result = self.graph.new(inputs, elements)

        def backward() -> None:
            gradient = self.gradients.pop(result)
            saved = [result] if saves_result else list(inputs)
            for x in inputs:
                self.accumulate(x, self.graph.new([gradient, *saved], elements))

        self.tape.append(backward)
        return result

    def add(self, a: int, b: int) -> int:
        result = self.graph.new([a, b], self.activation)

        def backward() -> None:
            gradient = self.gradients.pop(result)
            self.accumulate(a, gradient)
            self.accumulate(b, self.graph.new([gradient], self.activation))

        self.tape.append(backward)
        return result

    def norm(self, x: int) -> int:
        scale = self.graph.persistent()
        statistics, result = (self.graph.tensor(ELEMENT * n) for n in (2 * self.tokens, self.activation))
        self.graph.op([x, scale], [statistics, result])

        def backward() -> None:
            gradient = self.gradients.pop(result)
            self.accumulate(x, self.graph.new([gradient, x, statistics, scale], self.activation))
            self.updates.append((scale, self.graph.new([gradient, x, statistics], self.width)))

        self.tape.append(backward)
        return result

    def product(self, a: int, b: int, elements: int) -> int:
        """A product of activations, each of `activation` or attention elements."""
        result = self.graph.new([a, b], elements)
        sizes = [self.graph.sizes[self.graph.storage[t] or 0] // ELEMENT for t in (a, b)]

        def backward() -> None:
            gradient = self.gradients.pop(result)
            self.accumulate(a, self.graph.new([gradient, b], sizes[0]))
            self.accumulate(b, self.graph.new([gradient, a], sizes[1]))

        self.tape.append(backward)
        return result

    def layer(self, x: int) -> int:
        normed = self.norm(x)
        query, key, value = (self.linear(normed, self.width, self.width) for _ in range(3))
        pairs = self.heads * self.tokens * self.tokens
        scores = self.pointwise([self.product(query, key, pairs)], pairs, saves_result=True)
        context = self.product(scores, value, self.activation)
        x = self.add(x, self.linear(context, self.width, self.width))
        hidden = self.linear(self.norm(x), self.width, 4 * self.width)
        hidden = self.pointwise([hidden], 4 * self.activation, saves_result=False)
        return self.add(x, self.linear(hidden, 4 * self.width, self.width))

    def update(self, weight: int, gradient: int) -> None:
        """Adam: both moments in place, then the step, then the weight."""
        first, second = self.graph.persistent(), self.graph.persistent()
        self.graph.op([gradient, first], [first])
        self.graph.op([gradient, second], [second])
        storage = self.graph.storage[gradient]
        elements = self.graph.sizes[storage] // ELEMENT if storage is not None else 0
        step = self.graph.new([first, second], elements)
        self.graph.op([weight, step], [weight])


def transformer_training(layers: int, tokens: int = 512, width: int = 512, heads: int = 8) -> OrderProblem:
    """A step of a transformer of so many layers: 104 ops each, and 3 more."""
    step = Step(Graph(), tokens, width, heads)
    graph = step.graph
    tokens_in = graph.persistent()
    x = graph.new([tokens_in], step.activation)
    for _ in range(layers):
        x = step.layer(x)
    loss = graph.new([x], 1)
    step.gradients[x] = graph.new([loss, x], step.activation)
    while step.tape:
        step.tape.pop()()
    for weight, gradient in step.updates:
        step.update(weight, gradient)
    kept = graph.storage[loss]
    assert kept is not None
    return OrderProblem(graph.sizes, graph.touches, graph.after, frozenset({kept}))

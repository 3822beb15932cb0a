# SPDX-License-Identifier: Apache-2.0
"""A problem of recomputation and copies in layers, as published policies see a training step."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memc.solvers.offload import OffloadProblem


class Kind(enum.Enum):
    """What a layer computes, as far as policies care."""

    CONV = "conv"
    DENSE = "dense"
    POOL = "pool"
    SOFTMAX = "softmax"
    DROPOUT = "dropout"
    OTHER = "other"
    """Activations, normalization, joins."""


CHECKPOINTS = (Kind.CONV, Kind.DENSE, Kind.SOFTMAX)
"""Layers that SuperNeurons does not recompute, since they take long."""


@dataclass(frozen=True)
class Layer:
    """Ops one after another: a layer of the model in the forward pass, or what the backward pass does for one."""

    kind: Kind
    ops: Sequence[int]


@dataclass(frozen=True)
class LayeredProblem:
    """A problem whose ops run once in the order of their numbers, unless they are recomputed."""

    problem: OffloadProblem
    layers: Sequence[Layer]
    """In execution order; each op is in one."""
    forward: int
    """How many of the layers are the forward pass."""

    @cached_property
    def layer_of(self) -> list[int]:
        """Of each op."""
        found = [0] * len(self.problem.ops.costs)
        for index, layer in enumerate(self.layers):
            for op in layer.ops:
                found[op] = index
        return found

    @cached_property
    def maker(self) -> list[int]:
        """The op that makes each value."""
        found = [0] * len(self.problem.ops.sizes)
        for op, values in enumerate(self.problem.ops.makes):
            for value in values:
                found[value] = op
        return found

    @cached_property
    def readers(self) -> list[list[int]]:
        """The ops that read each value, in their order."""
        found: list[list[int]] = [[] for _ in self.problem.ops.sizes]
        for op, values in enumerate(self.problem.ops.reads):
            for value in values:
                found[value].append(op)
        return found

    @cached_property
    def boundary(self) -> int:
        """The first op of the backward pass."""
        return self.layers[self.forward].ops[0] if self.forward < len(self.layers) else len(self.layer_of)

    def last_forward(self, value: int) -> int:
        """The last op of the forward pass that reads a value, or the one that makes it."""
        return max((op for op in self.readers[value] if op < self.boundary), default=self.maker[value])

    def is_saved(self, value: int) -> bool:
        """Whether the forward pass makes the value and the backward pass reads it."""
        readers = self.readers[value]
        return self.maker[value] < self.boundary and bool(readers) and readers[-1] >= self.boundary

    @cached_property
    def needed_until(self) -> list[int]:
        """Of each value the last op that reads it, or what the forward pass makes of it in layers that are no checkpoints."""
        found = [max(readers, default=self.maker[value]) for value, readers in enumerate(self.readers)]
        for op in reversed(range(self.boundary)):
            if self.layers[self.layer_of[op]].kind not in CHECKPOINTS:
                last = max((found[value] for value in self.problem.ops.makes[op]), default=op)
                for value in self.problem.ops.reads[op]:
                    found[value] = max(found[value], last)
        return found

    def may_recompute(self, value: int) -> bool:
        """Whether the op of the forward pass that makes the value may run again as long as something needs it that is recomputed from
        checkpoints."""
        ops, maker = self.problem.ops, self.maker[value]
        return not ops.once[maker] and all(op > self.needed_until[value] for op in ops.until[maker])


def pass_boundary(problem: OffloadProblem) -> int:
    """The op at which the backward pass begins: the first one at which the most bytes wait that were read before and are read
    again; the number of ops if none ever waits.

    In a training step those are the activations, whose sum grows to the end of the forward pass. What is read at one place alone, as
    gradients are by updates, does not count.
    """
    ops = problem.ops
    change = [0] * (len(ops.costs) + 1)
    first, last = [-1] * len(ops.sizes), [-1] * len(ops.sizes)
    for op, values in enumerate(ops.reads):
        for value in values:
            last[value] = op
            first[value] = op if first[value] < 0 else first[value]
    for size, a, b in zip(ops.sizes, first, last):
        if a < b:
            change[a + 1] += size
            change[b + 1] -= size
    most, boundary, waiting = 0, len(ops.costs), 0
    for op in range(len(ops.costs)):
        waiting += change[op]
        if waiting > most:
            most, boundary = waiting, op
    return boundary

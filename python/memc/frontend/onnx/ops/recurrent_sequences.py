# SPDX-License-Identifier: Apache-2.0
"""What recurrent nodes work on, unrolled over time: inputs, states, weights, masks and results.

The input projection of several steps at a time is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.core import Value

from ..context import Known, NodeContext
from .gate_order import GateRows, cut, gate_rows, row_ranges
from .matmul import product

CHUNKS = 8
"""Input projections per sequence and direction, each made right before its steps. More of them keep fewer gates live and
read the input weights more often; the recurrent weights are read for every step all the same."""


@dataclass(frozen=True)
class Weights:
    """What one direction of a recurrent node multiplies by."""

    input: Value
    """[gates * hidden, input]"""
    recurrent: Value
    """[gates * hidden, hidden]"""
    places: tuple[int, ...]
    """How many gates lie before each gate, in the order of ONNX, in these weights and their biases."""
    biases: tuple[GateRows, ...] = ()
    """The places of the biases of both products, if they differ from the node's inputs."""


@dataclass(frozen=True)
class Sequences:
    """What a recurrent node works on, time first."""

    ctx: NodeContext
    x: Value
    """[steps, batch, input]"""
    steps: int
    batch: int
    hidden: int
    directions: tuple[bool, ...]
    """Whether each direction runs backwards."""
    masks: list[Value | None]
    """Whether each step lies within a sequence, [batch, 1]; None where it does for all."""

    @property
    def b(self) -> IRBuilder:
        return self.ctx.b

    def weight(self, index: int, direction: int) -> Value:
        """Input `index` without its leading axis of directions."""
        known = self.ctx.known(index)
        if known is not None:
            return self.b.constant(known[direction], name=f"{self.ctx.node.input[index]}.{direction}")
        value = self.ctx.value(index)
        return part_of(self.b, value, 0, direction, direction + 1, value.type.shape[1:])

    def state(self, index: int, direction: int) -> Value:
        """Initial state `index` of a direction [batch, hidden]; zeros if not given."""
        if not self.ctx.has(index):
            return self.b.op("broadcast", [self.b.scalar(0, self.x.type.dtype)], shape=(self.batch, self.hidden))
        value, axis = self.ctx.value(index), 1 if self.ctx.attr("layout", 0) else 0
        return part_of(self.b, value, axis, direction, direction + 1, (self.batch, self.hidden))

    def times(self, weight: Value) -> Callable[[Value], Value]:
        """What multiplies rows by `weight` [columns, row]."""
        return lambda rows: product(self.b, rows, weight, transpose_b=True)

    def projections(
        self, direction: int, multiplied: Callable[[Value], Value], bias: Value | None
    ) -> Iterator[tuple[int, Value]]:
        """Steps in the direction's order, each with its x `multiplied` by the weights, plus `bias`: [batch, gates * hidden].

        Ops are appended as the iteration gets to them.
        """
        batch = self.batch
        order = self.order(direction)
        size = max(-(-self.steps // CHUNKS), 1)
        for number in range(0, self.steps, size):
            chunk = order[number : number + size]
            first = min(chunk)
            found = multiplied(self.rows(first, max(chunk) + 1))
            found = found if bias is None else self.b.op("add", [found, bias])
            for step in chunk:
                at = (step - first) * batch
                yield step, part_of(self.b, found, 0, at, at + batch, (batch, found.type.shape[1]))

    def rows(self, start: int, stop: int) -> Value:
        """The inputs of some steps: [steps * batch, input]."""
        shape = ((stop - start) * self.batch, self.x.type.shape[2])
        made = self.x.op
        if made is None or made.name != "transpose" or stop - start == self.steps:
            return part_of(self.b, self.x, 0, start, stop, shape)
        # Only these steps are transposed, so that the whole sequence never is (unless others want it).
        perm = made.attrs["perm"]
        assert isinstance(perm, tuple) and isinstance(perm[0], int)
        source = made.operands[0]
        short = tuple(stop - start if axis == perm[0] else n for axis, n in enumerate(source.type.shape))
        part = self.b.op("transpose", [part_of(self.b, source, perm[0], start, stop, short)], perm=perm)
        return self.b.op("reshape", [part], shape=shape)

    def order(self, direction: int) -> list[int]:
        steps = list(range(self.steps))
        return steps[::-1] if self.directions[direction] else steps

    def final(self, state: Value) -> Value:
        """`state` after all steps; zero for sequences without any, whatever the initial state (docs/numerics.md)."""
        zero = self.b.scalar(0, state.type.dtype)
        if self.steps == 0:
            return self.b.op("broadcast", [zero], shape=state.type.shape)
        mask = self.masks[0]
        return state if mask is None else self.b.op("select", [mask, state, zero])

    def keep(self, step: int, new: Value, old: Value | None) -> Value:
        """`new` inside a sequence; beyond its end `old`, or zero."""
        mask = self.masks[step]
        if mask is None:
            return new
        return self.b.op("select", [mask, new, old if old is not None else self.b.scalar(0, new.type.dtype)])


def part_of(b: IRBuilder, x: Value, axis: int, start: int, stop: int, shape: tuple[int, ...]) -> Value:
    """x[..., start:stop, ...] on `axis`, in another shape."""
    starts = tuple(start if a == axis else 0 for a in range(x.type.rank))
    stops = tuple(stop if a == axis else n for a, n in enumerate(x.type.shape))
    if stops != x.type.shape or start:
        x = b.op("slice", [x], starts=starts, stops=stops, steps=(1,) * x.type.rank)
    return x if x.type.shape == shape else b.op("reshape", [x], shape=shape)


def gate_of(b: IRBuilder, x: Value, number: int, hidden: int) -> Value:
    """Gate `number` of [batch, gates * hidden]."""
    return part_of(b, x, 1, number * hidden, (number + 1) * hidden, (x.type.shape[0], hidden))


def sequences(ctx: NodeContext, hidden: int) -> Sequences:
    """What a node with `hidden` units works on."""
    b, x = ctx.b, ctx.value(0)
    if x.type.rank != 3:
        raise ctx.unsupported(f"expected an input of rank 3, got {x.type}")
    if ctx.attr("layout", 0):
        x = b.op("transpose", [x], perm=(1, 0, 2))
    steps, batch, _ = x.type.shape
    direction = str(ctx.attr("direction", "forward")).lower()
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in ways:
        raise ctx.unsupported(f"direction {direction}")
    if ctx.type(1).shape[0] != len(ways[direction]):
        raise ctx.unsupported(f"expected weights for {len(ways[direction])} directions, got {ctx.type(1)}")
    return Sequences(ctx, x, steps, batch, hidden, ways[direction], _masks(ctx, steps, batch))


def _masks(ctx: NodeContext, steps: int, batch: int) -> list[Value | None]:
    if not ctx.has(4):
        return [None] * steps
    lengths = ctx.known(4)
    if lengths is not None:
        within = [lengths > step for step in range(steps)]
        return [None if m.all() else ctx.b.constant(m.reshape(batch, 1)) for m in within]
    column = ctx.b.op("reshape", [ctx.value(4)], shape=(batch, 1))
    return [ctx.b.op("greater", [column, ctx.b.scalar(step, column.type.dtype)]) for step in range(steps)]


def clipped(ctx: NodeContext, x: Value) -> Value:
    """The input of a gate's activation, clipped if the node says so."""
    clip = ctx.attr("clip")
    return x if clip is None else ctx.b.op("clip", [x], min=-float(clip), max=float(clip))


def weights_of(s: Sequences, direction: int, fixed_last: bool = False) -> Weights:
    """The weights of a direction, in the order of gates that they come in; with `fixed_last` the last gate stays last."""
    found = _reordered(s, direction)
    if found is not None and not (fixed_last and found.places[-1] != len(found.places) - 1):
        return found
    gates = s.ctx.type(2).shape[1] // s.hidden
    return Weights(s.weight(1, direction), s.weight(2, direction), tuple(range(gates)))


def _reordered(s: Sequences, direction: int) -> Weights | None:
    """Weights that hold the gates in another order than ONNX's, which slices and concats before the node make up for."""
    rows = s.ctx.type(2).shape[1]
    given = [(1, 0), (2, 0)] + ([(3, 0), (3, rows)] if s.ctx.has(3) else [])
    found: list[GateRows] = []
    for index, start in given:
        if s.ctx.known(index) is not None:
            return None
        value = s.ctx.value(index)
        first = direction * value.type.shape[1] + start
        gates = gate_rows(cut(row_ranges(value, value.type.shape[2:]), first, first + rows), s.hidden)
        if gates is None or (found and gates.places != found[0].places):
            return None
        found.append(gates)
    matrices = [gates.read(s.b, s.ctx.type(index).shape[2:]) for index, gates in zip((1, 2), found)]
    return Weights(matrices[0], matrices[1], found[0].places, tuple(found[2:]))


def biases(s: Sequences, direction: int, weights: Weights) -> tuple[Value | None, Value | None]:
    """Input and recurrent bias of a direction, [gates * hidden] each, in the order of gates of `weights`."""
    if not s.ctx.has(3):
        return None, None
    if weights.biases:
        first, second = (gates.read(s.b, ()) for gates in weights.biases)
        return first, second
    both = s.weight(3, direction)
    half = both.type.elements // 2
    return part_of(s.b, both, 0, 0, half, (half,)), part_of(s.b, both, 0, half, 2 * half, (half,))


def sum_bias(s: Sequences, direction: int, weights: Weights) -> Value | None:
    """Input and recurrent bias together; added up at import where they are known."""
    known = s.ctx.known(3)
    if known is not None:
        half = known.shape[1] // 2
        return s.b.constant(known[direction, :half] + known[direction, half:])
    first, second = biases(s, direction, weights)
    return None if first is None or second is None else s.b.op("add", [first, second])


def collect(s: Sequences, outputs: list[list[Value]], lasts: Sequence[list[Value]]) -> list[Known]:
    """Y from `outputs[direction][step]` (in order of time), then each final state from `lasts[state][direction]`."""
    b, ctx = s.b, s.ctx
    batch_first = bool(ctx.attr("layout", 0))
    directions = len(s.directions)
    found: list[Known] = []
    if not s.steps:
        shape = (s.batch, 0, directions, s.hidden) if batch_first else (0, directions, s.batch, s.hidden)
        found.append(np.zeros(shape, s.x.type.dtype.numpy))
    elif ctx.node.output and ctx.node.output[0]:
        pieces = [outputs[d][t] for t in range(s.steps) for d in range(directions)]
        joined = b.op("concat", pieces, axis=0) if len(pieces) > 1 else pieces[0]
        y = b.op("reshape", [joined], shape=(s.steps, directions, s.batch, s.hidden))
        found.append(b.op("transpose", [y], perm=(2, 0, 1, 3)) if batch_first else y)
    else:
        found.append(np.zeros((), np.float32))  # nobody can refer to an unnamed output
    for states in lasts:
        joined = b.op("concat", states, axis=0) if directions > 1 else states[0]
        state = b.op("reshape", [joined], shape=(directions, s.batch, s.hidden))
        found.append(b.op("transpose", [state], perm=(1, 0, 2)) if batch_first else state)
    return found[: max(len(ctx.node.output), 1)]

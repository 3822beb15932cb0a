# SPDX-License-Identifier: Apache-2.0
"""LSTM, unrolled over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memc.ir.core import Value

from ..context import Known, NodeContext, imports
from .recurrent_activations import Activation, activations
from .recurrent_sequences import Sequences, clipped, collect, gate_of, part_of, sequences, sum_bias, weights_of


def _lstm_gate(s: Sequences, gates: Value, number: int, peephole: Value | None, cell: Value) -> Value:
    """The input of gate `number`'s activation, with its peephole [hidden] on the cell where there is one."""
    x = gate_of(s.b, gates, number, s.hidden)
    if peephole is not None:
        x = s.b.op("add", [x, s.b.op("mul", [peephole, cell])])
    return clipped(s.ctx, x)


@dataclass(frozen=True)
class Products:
    """What the gates of one direction are the sum of."""

    steps: Callable[[], Iterator[tuple[int, Value]]]
    """Steps in the direction's order, each with the product of its input, and the biases: [batch, 4 * hidden]."""
    recurrent: Callable[[Value], Value]
    """The product of the state before."""
    places: tuple[int, ...]
    """How many gates lie before each gate, in the order of ONNX."""


def lstm_over(s: Sequences, products_of: Callable[[int], Products]) -> list[Known]:
    """The results of an LSTM whose directions have these products."""
    b, n, ctx = s.b, s.hidden, s.ctx
    functions = activations(ctx, ("sigmoid", "tanh", "tanh"), len(s.directions))
    outputs: list[list[Value]] = []
    last_h, last_c = [], []
    for d, of_direction in enumerate(functions):
        products = products_of(d)
        peepholes = s.weight(7, d) if ctx.has(7) else None
        cut = [part_of(b, peepholes, 0, k * n, (k + 1) * n, (n,)) if peepholes else None for k in range(3)]
        h, c = s.state(5, d), s.state(6, d)
        made: dict[int, Value] = {}
        for step, x in products.steps():
            gates = b.op("add", [x, products.recurrent(h)])
            new_h, new_c = _cell(s, of_direction, gates, c, cut, products.places)
            made[step] = s.keep(step, new_h, None)
            h, c = s.keep(step, new_h, h), s.keep(step, new_c, c)
        outputs.append([made[t] for t in range(s.steps)])
        last_h.append(s.final(h))
        last_c.append(s.final(c))
    return collect(s, outputs, [last_h, last_c])


def _cell(
    s: Sequences,
    functions: Sequence[Activation],
    gates: Value,
    c: Value,
    peepholes: Sequence[Value | None],
    places: Sequence[int],
) -> tuple[Value, Value]:
    """The state and the cell after a step."""
    b, (f, g, h_fn) = s.b, functions
    (p_i, p_o, p_f), (at_i, at_o, at_f, at_c) = peepholes, places
    i = f(_lstm_gate(s, gates, at_i, p_i, c))
    if s.ctx.attr("input_forget", 0):
        forget = b.op("sub", [b.scalar(1, i.type.dtype), i])
    else:
        forget = f(_lstm_gate(s, gates, at_f, p_f, c))
    candidate = g(_lstm_gate(s, gates, at_c, None, c))
    new_c = b.op("add", [b.op("mul", [forget, c]), b.op("mul", [i, candidate])])
    return b.op("mul", [f(_lstm_gate(s, gates, at_o, p_o, new_c)), h_fn(new_c)]), new_c


@imports("LSTM")
def lstm(ctx: NodeContext) -> Sequence[Known]:
    s = sequences(ctx, ctx.type(2).shape[-1])

    def products_of(direction: int) -> Products:
        weights = weights_of(s, direction)
        return Products(
            lambda: s.projections(direction, s.times(weights.input), sum_bias(s, direction, weights)),
            s.times(weights.recurrent),
            weights.places,
        )

    return lstm_over(s, products_of)

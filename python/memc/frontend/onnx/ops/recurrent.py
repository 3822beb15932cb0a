# SPDX-License-Identifier: Apache-2.0
"""GRU and RNN, unrolled over time."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value

from ..context import Known, NodeContext, imports
from .matmul import product
from .recurrent_activations import activations
from .recurrent_sequences import biases, clipped, collect, gate_of, part_of, sequences, sum_bias, weights_of


@imports("GRU")
def gru(ctx: NodeContext) -> Sequence[Known]:
    s = sequences(ctx, ctx.type(2).shape[-1])
    b, n = s.b, s.hidden
    functions = activations(ctx, ("sigmoid", "tanh"), len(s.directions))
    reset_after = bool(ctx.attr("linear_before_reset", 0))
    outputs: list[list[Value]] = []
    last: list[Value] = []
    for d, (f, g) in enumerate(functions):
        weights = weights_of(s, d, fixed_last=True)
        # With the reset after the product, the recurrent bias of the candidate is inside the reset.
        inner_bias: Value | None = None
        if reset_after:
            bias, inner_bias = biases(s, d, weights)
        else:
            bias = sum_bias(s, d, weights)
        recurrent = weights.recurrent
        upper = part_of(b, recurrent, 0, 0, 2 * n, (2 * n, n))
        lower = part_of(b, recurrent, 0, 2 * n, 3 * n, (n, n))
        h = s.state(5, d)
        made: dict[int, Value] = {}
        for step, x in s.projections(d, s.times(weights.input), bias):
            x_gates = part_of(b, x, 1, 0, 2 * n, (s.batch, 2 * n))
            x_candidate = gate_of(b, x, 2, n)
            if reset_after:
                state = product(b, h, recurrent, transpose_b=True)
                state = state if inner_bias is None else b.op("add", [state, inner_bias])
                gates = b.op("add", [x_gates, part_of(b, state, 1, 0, 2 * n, (s.batch, 2 * n))])
            else:
                gates = b.op("add", [x_gates, product(b, h, upper, transpose_b=True)])
            z, r = (f(clipped(ctx, gate_of(b, gates, k, n))) for k in weights.places[:2])
            if reset_after:
                inner = b.op("mul", [r, gate_of(b, state, 2, n)])
            else:
                inner = product(b, b.op("mul", [r, h]), lower, transpose_b=True)
            candidate = g(clipped(ctx, b.op("add", [x_candidate, inner])))
            rest = b.op("sub", [b.scalar(1, z.type.dtype), z])
            new = b.op("add", [b.op("mul", [rest, candidate]), b.op("mul", [z, h])])
            made[step] = s.keep(step, new, None)
            h = s.keep(step, new, h)
        outputs.append([made[t] for t in range(s.steps)])
        last.append(s.final(h))
    return collect(s, outputs, [last])


@imports("RNN")
def rnn(ctx: NodeContext) -> Sequence[Known]:
    s = sequences(ctx, ctx.type(2).shape[-1])
    b = s.b
    functions = activations(ctx, ("tanh",), len(s.directions))
    outputs: list[list[Value]] = []
    last: list[Value] = []
    for d, (f,) in enumerate(functions):
        weights = weights_of(s, d)
        h = s.state(5, d)
        made: dict[int, Value] = {}
        for step, x in s.projections(d, s.times(weights.input), sum_bias(s, d, weights)):
            new = f(clipped(ctx, b.op("add", [x, product(b, h, weights.recurrent, transpose_b=True)])))
            made[step] = s.keep(step, new, None)
            h = s.keep(step, new, h)
        outputs.append([made[t] for t in range(s.steps)])
        last.append(s.final(h))
    return collect(s, outputs, [last])

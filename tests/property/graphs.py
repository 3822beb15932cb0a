# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: random valid modules over the registered ops, and inputs for them.

Values stay moderate and ops whose result jumps (comparisons, rounding, sorting) only see parameters, so that a
pass that changes the last bit of a float changes no result by much.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Attr, Function, Op, Role, Value
from memc.ir.errors import OpError
from memc.ir.module import Module
from memc.ir.types import DType, TensorType

MAX_ELEMENTS = 600
"""Elements of a value, at most."""

Draw = Callable[[st.SearchStrategy[int]], int]


class Graph:
    """A module that is being drawn."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.module = Module([Function([])])
        self.function = self.module.main
        self.b = IRBuilder(self.module, self.function, self.function.ops)
        self.rng = np.random.default_rng(self.number(0, 2**16))
        self.pool: list[Value] = []

    def number(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return self.draw(st.integers(low, high))

    def chance(self, one_in: int) -> bool:
        return self.number(0, one_in - 1) == one_in - 1

    def pick(self, values: list[Value]) -> Value:
        """One of `values`, the latest ones more often, so that chains form."""
        recent = values[-3:] if self.number(0, 2) else values
        return recent[self.number(0, len(recent) - 1)]

    def any(self, dtype: DType = DType.F32, least_rank: int = 0) -> Value:
        """A value of the pool. Raises OpError if there is none such."""
        found = [v for v in self.pool if v.type.dtype is dtype and v.type.rank >= least_rank]
        if not found:
            raise OpError("no such value")
        return self.pick(found)

    def like(self, shape: tuple[int, ...], dtype: DType = DType.F32) -> Value:
        """A value of this shape: one of the pool, or new data."""
        found = [v for v in self.pool if v.type == TensorType(dtype, shape)]
        return self.pick(found) if found and not self.chance(3) else self.data(shape)

    def data(self, shape: tuple[int, ...]) -> Value:
        return self.b.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def axis(self, value: Value) -> int:
        return self.number(0, value.type.rank - 1)

    def shape(self) -> tuple[int, ...]:
        extents = (1, 2, 3, 4, 8, 16, 5, 0)
        return tuple(extents[min(self.number(0, 8), 7)] for _ in range(self.number(0, 4)))

    def parameters(self) -> None:
        dtypes = (DType.F32, DType.F32, DType.F32, DType.BOOL, DType.F64, DType.I64)
        for i in range(self.number(1, 4)):
            dtype = dtypes[self.number(0, 5)] if i else DType.F32
            value = Value(f"x{i}", TensorType(dtype, self.shape()), role=Role.INPUT)
            self.function.params.append(value)
            self.pool.append(value)


Step = Callable[[Graph], "Value | Op"]
"""Adds an op with random operands. Raises OpError where the pool has none that fit."""

_UNARY = ("neg", "abs", "relu", "sigmoid", "tanh", "sin", "cos", "silu", "erf", "copy")
_BINARY = ("add", "sub", "mul", "min", "max")


def unary(g: Graph) -> Value:
    return g.b.op(_UNARY[g.number(0, len(_UNARY) - 1)], [g.any()])


def activation(g: Graph) -> Value:
    if g.chance(2):
        return g.b.op("leaky_relu", [g.any()], alpha=0.25)
    return g.b.op("clip", [g.any()], min=-0.5, max=0.5)


def binary(g: Graph) -> Value:
    """Operands may be the same value, of equal shapes, broadcast, or a scalar."""
    a = g.any()
    fits = [v for v in g.pool if v.type.dtype is a.type.dtype and _broadcasts(v.type.shape, a.type.shape)]
    b = g.pick(fits) if not g.chance(4) else g.data(())
    pair = [a, b] if g.chance(2) else [b, a]
    return g.b.op(_BINARY[g.number(0, len(_BINARY) - 1)], pair)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def choose(g: Graph) -> Value:
    mask = g.any(DType.BOOL)
    fits = [v for v in g.pool if v.type.dtype is DType.F32 and _broadcasts(v.type.shape, mask.type.shape)]
    if not fits:
        raise OpError("no such value")
    return g.b.op("select", [mask, g.pick(fits), g.data(())])


def cast(g: Graph) -> Value:
    """To a wider type and back, through which no precision is lost; bool and i64 inputs become floats."""
    source = g.any((DType.F32, DType.F64, DType.BOOL, DType.I64)[g.number(0, 3)])
    return g.b.op("cast", [source], to=DType.F64 if source.type.dtype is DType.F32 else DType.F32)


def reshape(g: Graph) -> Value:
    source = g.any()
    shape = list(source.type.shape)
    kind = g.number(0, 3)
    if kind == 0:
        shape = [source.type.elements]
    elif kind == 1:
        shape.insert(g.number(0, len(shape)), 1)
    elif kind == 2:
        shape = [n for n in shape if n != 1]
    else:
        shape = shape[::-1]
    return g.b.op("reshape", [source], shape=tuple(shape))


def transpose(g: Graph) -> Value:
    source = g.any(least_rank=2)
    return g.b.op("transpose", [source], perm=tuple(int(p) for p in g.rng.permutation(source.type.rank)))


def broadcast(g: Graph) -> Value:
    source = g.any()
    shape = tuple(3 if n == 1 and g.chance(2) else n for n in source.type.shape)
    return g.b.op("broadcast", [source], shape=(2, *shape) if g.chance(2) and len(shape) < 5 else shape)


def slice_(g: Graph) -> Value:
    """One axis cut, contiguous or with a step, forwards or backwards, sometimes empty."""
    source = g.any(least_rank=1)
    axis = 0 if not g.chance(3) else g.axis(source)
    extent = source.type.shape[axis]
    low = g.number(0, extent)
    high = g.number(low, extent)
    step = (1, 1, 1, 2, -1)[g.number(0, 4)]
    starts, stops, steps = [0] * source.type.rank, list(source.type.shape), [1] * source.type.rank
    starts[axis], stops[axis], steps[axis] = (low, high, step) if step > 0 else (high - 1, low - 1, step)
    if high == low and step < 0:
        raise OpError("nothing to walk backwards over")
    return g.b.op("slice", [source], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def concat(g: Graph) -> Value:
    first = g.any(least_rank=1)
    axis = 0 if g.chance(2) else g.axis(first)

    def rest(value: Value) -> tuple[int, ...]:
        return value.type.shape[:axis] + value.type.shape[axis + 1 :]

    fits = [
        v for v in g.pool if v.type.dtype is DType.F32 and v.type.rank == first.type.rank and rest(v) == rest(first)
    ]
    return g.b.op("concat", [first, *(g.pick(fits) for _ in range(g.number(1, 3)))], axis=axis)


def pad(g: Graph) -> Value:
    source = g.any(least_rank=1)
    low, high = ([g.number(0, 1) for _ in source.type.shape] for _ in range(2))
    return g.b.op("pad", [source], low=tuple(low), high=tuple(high), value=0.5, mode="constant")


def gather(g: Graph) -> Value:
    source = g.any(least_rank=1)
    axis = g.axis(source)
    if source.type.shape[axis] == 0:
        raise OpError("nothing to gather")
    picks = g.rng.integers(0, source.type.shape[axis], g.number(1, 3))
    return g.b.op("gather", [source, g.b.constant(picks.astype(np.int64))], axis=axis)


def reduce(g: Graph) -> Value:
    source = g.any(least_rank=1)
    axes = sorted({g.axis(source), g.axis(source)})
    if any(source.type.shape[a] == 0 for a in axes):
        raise OpError("nothing to reduce")
    kind = ("reduce_mean", "reduce_max", "reduce_min", "reduce_mean")[g.number(0, 3)]
    return g.b.op(kind, [source], axes=tuple(axes), keepdims=g.chance(2))


def normalize(g: Graph) -> Value:
    source = g.any(least_rank=1)
    axis = g.axis(source)
    if g.chance(2):
        return g.b.op("softmax", [source], axis=axis)
    shape = source.type.shape[axis:]
    extra = [g.like(shape) for _ in range(g.number(0, 2))]
    return g.b.op("layer_norm", [source, *extra], axis=axis, epsilon=0.5)


def cumulate(g: Graph) -> Value:
    source = g.any(least_rank=1)
    return g.b.op("cumsum", [source], axis=g.axis(source), exclusive=g.chance(2), reverse=g.chance(2))


def matmul(g: Graph) -> Value:
    source = g.any(least_rank=2)
    inner = source.type.shape[-1]
    other = g.data((inner, g.number(1, 4)))
    return g.b.op("tanh", [g.b.op("matmul", [source, other], transpose_a=False, transpose_b=False)])


def conv(g: Graph) -> Value:
    source = _image(g)
    channels = source.type.shape[1]
    weight = g.data((g.number(1, 4), channels, 3, 3))
    bias = [g.data((weight.type.shape[0],))] if g.chance(2) else []
    window: dict[str, Attr] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    return g.b.op("conv", [source, weight, *bias], group=1, **window)


def pool(g: Graph) -> Value:
    window: dict[str, Attr] = {"kernel": (2, 2), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    return g.b.op("max_pool", [_image(g)], **window)


def _image(g: Graph) -> Value:
    """Some value as [n, c, h, w] without empty axes."""
    source = g.any(least_rank=1)
    if source.type.elements == 0 or source.type.rank > 4:
        raise OpError("no such value")
    shape = (1,) * (4 - source.type.rank) + source.type.shape
    return g.b.op("reshape", [source], shape=shape) if shape != source.type.shape else source


def top_k(g: Graph) -> Op:
    """Two results, of which the second is often unused. Only of parameters, as a tie could go either way."""
    found = [p for p in g.function.params_of(Role.INPUT) if p.type.dtype is DType.F32 and p.type.rank]
    if not found:
        raise OpError("no such value")
    source = g.pick(found)
    axis = g.axis(source)
    k = g.number(0, source.type.shape[axis])
    return g.b.multi("top_k", [source], axis=axis, k=k, largest=g.chance(2))


STEPS: tuple[Step, ...] = (
    *(unary, unary, binary, binary, binary, activation, choose, cast),
    *(reshape, reshape, slice_, slice_, concat, concat, transpose, broadcast, pad, gather),
    *(reduce, normalize, cumulate, matmul, conv, pool, top_k),
)


@st.composite
def modules(draw: Draw, max_ops: int = 24) -> Module:
    """A module with one function of up to about `max_ops` ops, some unused, and one to four returned values.

    Returned values may be parameters, constants, views, and the same value twice.
    """
    return fill(Graph(draw), max_ops)


class SeededGraph(Graph):
    """A graph that a seed decides: for tests that count what they find in many graphs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        super().__init__(lambda strategy: 0)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


def fill(g: Graph, max_ops: int) -> Module:
    """The module of `modules` that `g` draws."""
    g.parameters()
    for _ in range(g.number(1, max_ops)):
        step = STEPS[g.number(0, len(STEPS) - 1)]
        before = len(g.function.ops)
        try:
            made = step(g)
        except OpError:
            continue
        op = made if isinstance(made, Op) else made.op
        assert op is not None
        if any(r.type.elements > MAX_ELEMENTS for r in op.results):
            del g.function.ops[before:]
            continue
        g.pool.extend(op.results)
    count = g.number(1, 4)
    g.function.returns = [g.pick(g.pool) for _ in range(count)]
    if g.chance(2):
        g.function.result_names = [f"y{i}" for i in range(count)]
    return g.module


def inputs_of(module: Module, seed: int = 0) -> dict[str, Array]:
    """Inputs for a module of `modules()`: floats in [-1, 1), bools, small integers."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for param in module.main.params_of(Role.INPUT):
        dtype, shape = param.type.dtype, param.type.shape
        if dtype.is_float:
            found[param.name] = rng.uniform(-1, 1, shape).astype(dtype.numpy)
        else:
            found[param.name] = rng.integers(0, 2, shape).astype(dtype.numpy)
    return found

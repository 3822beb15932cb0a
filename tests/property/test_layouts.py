# SPDX-License-Identifier: Apache-2.0
"""Random networks of images with any of their ops written for channels last, and through the pipeline."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memc.ir.build import IRBuilder
from memc.ir.core import Array, Function, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.types import DType, TensorType
from memc.ir.verify.memory_plan import check_plan
from memc.ir.verify.structure import verify
from memc.passes.layout.channels_last import write_last
from memc.passes.layout.layout_forms import has_last_form
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

KINDS = ("conv", "relu", "scale", "pool", "mean", "concat", "add", "pad", "slice", "resize", "gate", "other")


class Network:
    """A network that is being drawn."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(self.number(0, 2**16))
        self.axes = self.number(2, 3)
        spatial = [self.number(3, 6 if self.axes == 2 else 4) for _ in range(self.axes)]
        shape = (self.number(1, 2), (3, 4, 8)[self.number(0, 2)], *spatial)
        x = Value("x", TensorType(DType.F32, shape), role=Role.INPUT)
        self.module = Module([Function([x])])
        self.b = IRBuilder(self.module, self.module.main, self.module.main.ops)
        self.pool = [x]

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(range(2, 2 + self.axes))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def weight(self, *extents: int) -> Value:
        return self.b.constant(self.rng.uniform(-1, 1, extents).astype(np.float32))

    def pick(self) -> Value:
        return self.pool[-1] if self.number(0, 2) else self.pool[self.number(0, len(self.pool) - 1)]

    def window(self, kernel: int) -> dict[str, tuple[int, ...]]:
        more = (1,) * (self.axes - 1)
        return {"strides": (self.number(1, 2), *more), "pads": (kernel // 2,) * 2 * self.axes, "dilations": (1, *more)}

    def made(self, kind: str, v: Value) -> Value:
        """An op of a kind on v."""
        b, number = self.b, self.number
        if kind == "conv":
            kernel = (1, 3)[number(0, 1)]
            bias = [self.weight(8)] if number(0, 1) else []
            w = self.weight(8, v.type.shape[1], *[kernel] * self.axes)
            return b.op("conv", [v, w, *bias], group=1, **self.window(kernel))
        if kind == "scale":
            factor = self.factor(v)
            return b.op(("mul", "add")[number(0, 1)], [v, factor] if number(0, 1) else [factor, v])
        if kind == "pool":
            return b.op(("max_pool", "sum_pool")[number(0, 1)], [v], kernel=(3,) * self.axes, **self.window(3))
        if kind == "mean":
            return b.op("reduce_mean", [v], axes=(self.spatial, (1,), (1, 3))[number(0, 2)], keepdims=True)
        if kind in ("concat", "add"):
            alike = [u for u in self.pool if u.type == v.type]
            other = alike[number(0, len(alike) - 1)]
            return (
                b.op("add", [v, other]) if kind == "add" else b.op("concat", [v, other], axis=number(0, self.axes + 1))
            )
        if kind == "gate":
            return b.op("mul", [v, b.op("reduce_max", [v], axes=self.spatial, keepdims=True)])
        if kind == "other":
            return b.op("softmax", [v], axis=number(0, 3))
        return b.op("relu", [v]) if kind == "relu" else self.moved(kind, v)

    def factor(self, v: Value) -> Value:
        _, channels, *spatial = v.type.shape
        ones = [1] * self.axes
        shapes: list[list[int]] = [[channels, *ones], spatial, [1, channels, *ones[1:], spatial[-1]], []]
        return self.weight(*shapes[self.number(0, 3)])

    def moved(self, kind: str, v: Value) -> Value:
        """An op with numbers for axes."""
        b, number = self.b, self.number
        if kind == "pad":
            low, high = (tuple(number(0, 1) for _ in v.type.shape) for _ in range(2))
            return b.op("pad", [v], low=low, high=high, mode="constant", value=0.5)
        if kind == "slice":
            starts = tuple(number(0, n - 1) for n in v.type.shape)
            return b.op("slice", [v], starts=starts, stops=v.type.shape, steps=(1, number(1, 2), *[1] * self.axes))
        axes = ((2,), (3, 2))[number(0, 1)]
        tables = [b.constant(np.arange(2 * v.type.shape[a], dtype=np.int32) // 2) for a in axes]
        return b.op("resize_nearest", [v, *tables], axes=axes)


@st.composite
def networks(draw: st.DrawFn) -> Module:
    """Convolutions, and what lies between them; several results."""
    net = Network(draw)
    pool, function = net.pool, net.module.main
    for _ in range(net.number(2, 8)):
        found = net.made(KINDS[net.number(0, len(KINDS) - 1)], net.pick())
        if found.type.elements <= 4000 and min(found.type.shape) > 0:
            pool.append(found)
    function.returns = list(dict.fromkeys([pool[-1], pool[net.number(int(len(pool) > 1), len(pool) - 1)]]))
    function.result_names = [f"y{n}" for n in range(len(function.returns))]
    return net.module


def assert_near(found: dict[str, Array], expected: dict[str, Array]) -> None:
    for name, value in found.items():
        size = max(float(np.abs(expected[name]).max(initial=0)), 1)
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5 * size)


@given(networks(), st.randoms(use_true_random=False))
def test_any_op_may_take_either_layout(module: Module, choice: object) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, module.main.params[0].type.shape).astype(np.float32)
    expected = evaluate(module, {"x": x})
    able = [op for op in module.main.ops if has_last_form(op, tf32=True)]
    chosen = {op for op in able if choice.random() < 0.7}  # type: ignore[attr-defined]
    write_last(module, module.main, chosen)
    verify(module)
    assert not chosen & set(module.main.ops)
    assert_near(evaluate(module, {"x": x}), expected)


@given(networks())
def test_the_pipeline(module: Module) -> None:
    module.target = Target.of("cuda")
    x = np.random.default_rng(1).uniform(-1, 1, module.main.params[0].type.shape).astype(np.float32)
    PassManager.parse("materialize-returns").run(module)
    expected = evaluate(module, {"x": x})
    planned = copy.deepcopy(module)
    write_last(planned, planned.main, {op for op in planned.main.ops if has_last_form(op, tf32=True)})
    PassManager.parse(pipeline(2, "cuda", precision="tf32")).run(planned)
    check_plan(planned, 256, arena_bytes(planned.main))
    assert_near(evaluate_in_arena(planned, {"x": x}), expected)

# SPDX-License-Identifier: Apache-2.0
"""Slices, transposes and concats that `canonicalize` takes before a pad, or of which nothing is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.passes.rewrite.canonicalize import canonicalize
from memc.passes.rewrite.move_slices import whole_of

SHAPE = (3, 4)


def module_with_input() -> tuple[Module, IRBuilder, Value]:
    x = Value("x", TensorType(DType.F32, SHAPE), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    return module, IRBuilder(module, function, function.ops), x


def rewritten(module: Module) -> list[str]:
    """Names of the ops that `canonicalize` leaves, which compute what was computed before."""
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    expected = evaluate(module, {"x": x})
    canonicalize(module, module.main, 65536, cse=True)
    for found, value in zip(evaluate(module, {"x": x}).values(), expected.values()):
        np.testing.assert_array_equal(found, value)
    return [op.name for op in module.main.ops]


@given(st.data())
def test_a_slice_of_a_pad(data: st.DataObject) -> None:
    """Of a transposed pad, as it is or as rows one after another; the pad goes where a slice needs none of it or nothing else."""
    module, b, x = module_with_input()
    low, high = (tuple(data.draw(st.integers(0, 2)) for _ in SHAPE) for _ in range(2))
    padded = b.op("pad", [x], low=low, high=high, mode="constant", value=data.draw(st.sampled_from([0.0, 2.5])))
    if data.draw(st.booleans()):
        padded = b.op("transpose", [padded], perm=(1, 0))
    if data.draw(st.booleans()):
        padded = b.op("reshape", [padded], shape=(padded.type.elements,))
    for _ in range(data.draw(st.integers(1, 3))):
        bounds = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in padded.type.shape]
        steps = tuple(data.draw(st.integers(1, 2)) for _ in bounds)
        starts, stops = zip(*bounds)
        module.main.returns.append(b.op("slice", [padded], starts=starts, stops=stops, steps=steps))
    rewritten(module)


@pytest.mark.parametrize("row", [0, 2])
def test_nothing_is_padded_for_one_row(row: int) -> None:
    module, b, x = module_with_input()
    padded = b.op("pad", [x], low=(1, 0), high=(1, 0), mode="constant", value=0.0)
    module.main.returns = [b.op("slice", [padded], starts=(row, 0), stops=(row + 1, 4), steps=(1, 1))]
    assert "pad" not in rewritten(module)


@pytest.mark.parametrize(("zero", "left"), [(-0.0, ["neg", "exp"]), (0.0, ["constant", "neg", "add", "exp"])])
def test_a_gradient_of_zeros_is_not_added(zero: float, left: list[str]) -> None:
    """But for zeros that would change the sign of another one."""
    module, b, x = module_with_input()
    padded = b.op("pad", [x], low=(0, 0), high=(3, 0), mode="constant", value=zero)
    zeros = b.op("slice", [padded], starts=(3, 0), stops=(6, 4), steps=(1, 1))
    module.main.returns = [b.op("exp", [b.op("add", [b.op("neg", [x]), zeros])])]
    assert rewritten(module) == left


@pytest.mark.parametrize(
    ("rows", "axis", "joined"),
    [
        ([(0, 1), (1, 3)], 0, "exp"),
        ([(1, 3), (0, 1)], 0, "concat"),
        ([(0, 1), (1, 2)], 0, "concat"),
        ([(0, 2), (1, 3)], 0, "concat"),
        ([(0, 3), (0, 3)], 0, "concat"),
        ([(0, 1), (1, 2), (2, 3)], 1, "exp"),
    ],
)
def test_all_rows_of_a_value_one_after_another_are_the_value(
    rows: list[tuple[int, int]], axis: int, joined: str
) -> None:
    module, b, x = module_with_input()
    y = b.op("exp", [x])
    parts = [b.op("slice", [y], starts=(start, 0), stops=(stop, 4), steps=(1, 1)) for start, stop in rows]
    module.main.returns = [b.op("neg", [b.op("concat", parts, axis=axis)])]
    assert (joined in rewritten(module)) and ("concat" in rewritten(module)) == (joined == "concat")


def test_parts_side_by_side_in_rows_of_one() -> None:
    module = parse("""func @main(%x: f32[1,8] {role = input}) -> f32[1,8] {
      %y = exp(%x) : f32[1,8]
      %a = slice(%y) {starts = [0,0], stops = [1,3], steps = [1,1]} : f32[1,3]
      %b = slice(%y) {starts = [0,3], stops = [1,8], steps = [1,1]} : f32[1,5]
      %z = concat(%a, %b) {axis = 1} : f32[1,8]
      return %z
    }""")
    y, a, b, _ = (op.result for op in module.main.ops)
    assert whole_of([a, b], 1) is y
    assert whole_of([a, b], 0) is y and whole_of([b, a], 1) is None and whole_of([a], 1) is None

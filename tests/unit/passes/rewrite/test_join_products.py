# SPDX-License-Identifier: Apache-2.0
"""join-products on random sums: the same values, and never a higher peak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.passes.placement.alias_plan import planned_peak
from memc.passes.rewrite.join_products import join_products

ROWS, COLUMNS = 6, 5


@st.composite
def sums(draw: st.DrawFn) -> Module:
    """Up to two sums of products of drawn depths and transpositions, added up in a drawn order; concats of left operands."""
    x = Value("x", TensorType(DType.F64, (4, 6)), role=Role.INPUT)
    function = Function([x])
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    returned: list[Value] = []
    for _ in range(draw(st.integers(1, 2))):
        t_a, t_b = draw(st.booleans()), draw(st.booleans())
        terms, lefts = [], []
        for _ in range(draw(st.integers(2, 5))):
            depth = draw(st.integers(1, 4))
            a, c = (_drawn(b, x, draw, rows, t) for rows, t in (((ROWS, depth), t_a), ((depth, COLUMNS), t_b)))
            lefts.append(a)
            terms.append(b.op("matmul", [a, c], transpose_a=t_a, transpose_b=t_b))
            if draw(st.integers(0, 3)) == 0:
                returned.append(terms[-1])
        if draw(st.booleans()):
            first = draw(st.integers(0, len(lefts) - 2))
            part = draw(st.permutations(lefts[first : first + draw(st.integers(2, 4))]))
            returned.append(b.op("concat", part, axis=0 if t_a else 1))
        while len(terms) > 1:
            one = terms.pop(draw(st.integers(0, len(terms) - 1)))
            other = terms.pop(draw(st.integers(0, len(terms) - 1)))
            terms.append(b.op("add", [one, other]))
        returned += terms
        if draw(st.booleans()):
            returned.append(b.op("neg", terms))
    function.returns = list(dict.fromkeys(returned))
    return module


def _drawn(b: IRBuilder, x: Value, draw: st.DrawFn, shape: tuple[int, int], transposed: bool) -> Value:
    """A value of the shape, or of the exchanged one, that no other is equal to."""
    rows, columns = shape[::-1] if transposed else shape
    rolled = b.op("mul", [x, b.scalar(draw(st.floats(0.5, 2)), DType.F64)])
    flat = b.op("reshape", [rolled], shape=(24,))
    wide = b.op("concat", [flat, flat], axis=0)
    start = draw(st.integers(0, 48 - rows * columns))
    part = b.op("slice", [wide], starts=(start,), stops=(start + rows * columns,), steps=(1,))
    return b.op("reshape", [b.op("sin", [part])], shape=(rows, columns))


@settings(deadline=None)
@given(sums())
def test_sums_keep_their_values(module: Module) -> None:
    x = np.random.default_rng(0).normal(size=(4, 6))
    expected = evaluate(module, {"x": x})
    peak = planned_peak(module.main, 8)
    join_products(module, module.main, 8)
    verify(module)
    assert planned_peak(module.main, 8) <= peak
    found = evaluate(module, {"x": x})
    for (name, value), other in zip(expected.items(), found.values()):
        np.testing.assert_allclose(other, value, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("steps", [2, 9])
def test_one_product_for_all_steps(steps: int) -> None:
    """A weight's gradient over `steps` steps of 2 rows: 16 x 64 of them make one product, however many."""
    params = [
        Value(f"{name}{n}", TensorType(DType.F32, (2, size)), role=Role.INPUT)
        for n in range(steps)
        for name, size in (("g", 64), ("x", 16))
    ]
    function = Function(params)
    module = Module([function])
    b = IRBuilder(module, function, function.ops)
    products = [b.op("matmul", [g, x], transpose_a=True, transpose_b=False) for g, x in zip(params[::2], params[1::2])]
    total = products[0]
    for product in products[1:]:
        total = b.op("add", [total, product])
    function.returns = [total]
    join_products(module, function)
    assert [op.name for op in function.ops] == ["concat", "concat", "matmul"]
    assert function.ops[-1].operands[0].type.shape == (2 * steps, 64)


def test_a_state_that_is_updated_before_the_sum_is_complete() -> None:
    """What is put side by side would be read behind the update."""
    module = parse("""
func @main(%h: f32[1,60] {role = state}, %x: f32[1,60] {role = input}) -> (f32[60,60] {name = "y"}, f32[1,60] {name = "h"}) {
  %0 = matmul(%h, %x) {transpose_a = true, transpose_b = false} : f32[60,60]
  %1 = exp(%x) : f32[1,60]
  %new = assign(%h, %1) : f32[1,60]
  %2 = sin(%x) : f32[1,60]
  %3 = matmul(%1, %2) {transpose_a = true, transpose_b = false} : f32[60,60]
  %4 = cos(%x) : f32[1,60]
  %5 = matmul(%2, %4) {transpose_a = true, transpose_b = false} : f32[60,60]
  %6 = add(%0, %3) : f32[60,60]
  %7 = add(%6, %5) : f32[60,60]
  %y = tanh(%7) : f32[60,60]
  return %y, %new
}
""")
    rng = np.random.default_rng(2)
    given = {name: rng.normal(size=(1, 60)).astype(np.float32) for name in ("h", "x")}
    PassManager.parse("materialize-returns").run(module)
    expected = evaluate(module, given)
    PassManager.parse("join-products,in-place,assign-addresses").run(module)
    for name, value in evaluate_in_arena(module, given).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)

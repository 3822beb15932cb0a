# SPDX-License-Identifier: Apache-2.0
"""Evaluation: plain values, and what the poisoned arena must show."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from memc.ir.errors import CheckError, InvalidError, UnsupportedError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.evaluate.arena import ArenaRun
from memc.ir.evaluate.plain import bind
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify

X = np.array([-2.0, -1.0, 1.0, 2.0], np.float32)
W = np.array([10.0, 20.0, 30.0, 40.0], np.float32)


def module(ops: str, result: str = "f32[4]", *, check: bool = True) -> Module:
    header = "func @main(%x: f32[4] {role = input}, %w: f32[4] {role = weight})"
    parsed = parse(f"{header} -> {result} {{\n{ops}\n}}\n")
    if check:
        verify(parsed)
    parsed.weights["w"] = W
    return parsed


def test_plain() -> None:
    ops = "%0 = add(%x, %w) : f32[4]\n%1 = relu(%x) : f32[4]\nreturn %0, %1, %0"
    found = evaluate(module(ops, '(f32[4] {name = "a"}, f32[4] {name = "b"}, f32[4] {name = "c"})'), {"x": X})
    assert list(found) == ["a", "b", "c"]
    np.testing.assert_array_equal(found["a"], [8, 19, 31, 42])
    np.testing.assert_array_equal(found["b"], [0, 0, 1, 2])
    np.testing.assert_array_equal(found["c"], found["a"])


def test_results_without_names_go_by_position_and_are_fresh() -> None:
    found = evaluate(module("return %x, %w", "(f32[4], f32[4])"), {"x": X})
    found["0"][:] = 0
    found["1"][:] = 0
    assert X[0] == -2 and W[0] == 10


def test_fused_region() -> None:
    ops = """%0 = fused(%x, %w) region(%a: f32[4], %b: f32[4]) {
      %c = mul(%a, %b) : f32[4]
      %d = relu(%c) : f32[4]
      yield %d
    } : f32[4]
    return %0"""
    for found in (evaluate(module(ops), {"x": X}), evaluate_in_arena(module(ops), {"x": X})):
        np.testing.assert_array_equal(found["0"], [0, 0, 30, 80])


def test_input_errors() -> None:
    m = module("return %x")
    with pytest.raises(InvalidError, match=r"input `x`: expected data of type f32\[4\], got none"):
        evaluate(m, {})
    with pytest.raises(InvalidError, match=r"`x`: expected data of type f32\[4\], got float64\[4\]"):
        evaluate(m, {"x": X.astype(np.float64)})
    with pytest.raises(InvalidError, match=r"`x`: expected data of type f32\[4\], got float32\[2,2\]"):
        evaluate(m, {"x": X.reshape(2, 2)})
    with pytest.raises(InvalidError, match=r"input `q`: expected one of \['x'\]"):
        evaluate(m, {"x": X, "q": X})
    m.weights.clear()
    with pytest.raises(InvalidError, match=r"weight `w`: expected data of type f32\[4\], got none"):
        evaluate(m, {"x": X})


def test_foreign_op() -> None:
    m = module('%0 = "aten.f"(%x) : f32[4] @arena[0] loc("n1")\n%1 = neg(%0) : f32[4]\nreturn %1')
    for run in (evaluate, evaluate_in_arena):
        with pytest.raises(UnsupportedError, match=r"op aten.f \(n1\): expected a registered op"):
            run(m, {"x": X})


GOOD = {
    "in place": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0] @arena[0]
      %2 = add(%1, %w) : f32[4]
      return %2""",
    "one place after another": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = exp(%0) : f32[4] @arena[64]
      %2 = add(%1, %w) : f32[4] @arena[0]
      %3 = neg(%2) : f32[4]
      return %3""",
    "concat slices": """
      %0 = neg(%x) : f32[4] alias %2[0] @arena[64]
      %1 = exp(%x) : f32[4] @arena[0]
      %2 = concat(%0, %1) {axis = 0} : f32[8] @arena[64]
      %3 = slice(%2) {starts = [2], stops = [6], steps = [1]} : f32[4] alias %2[8] @arena[72]
      %4 = add(%3, %0) : f32[4]
      return %4""",
    "view of the returned value": """
      %0 = neg(%x) : f32[4]
      %1 = reshape(%0) {shape = [4]} : f32[4] alias %0[0]
      return %1""",
    "views of input and weight": """
      %0 = reshape(%x) {shape = [4]} : f32[4] alias %x[0]
      %1 = reshape(%w) {shape = [4]} : f32[4] alias %w[0]
      %2 = add(%0, %1) : f32[4]
      return %2""",
    "another space": """
      %0 = neg(%x) : f32[4] @"buffer 3"[0]
      %1 = relu(%0) : f32[4] @arena[0]
      %2 = add(%0, %1) : f32[4]
      return %2""",
    "written into the buffer of the result": """
      %0 = neg(%x) : f32[4]
      %1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]
      return %1""",
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("poison", [0xFF, 0xA5])
def test_arena_equals_plain(name: str, poison: int) -> None:
    m = module(GOOD[name])
    expected, found = evaluate(m, {"x": X}), evaluate_in_arena(m, {"x": X}, poison=poison)
    assert expected.keys() == found.keys()
    for key in expected:
        np.testing.assert_array_equal(found[key], expected[key])
    assert X.tolist() == [-2, -1, 1, 2]


SPOILED = {
    "live values on the same bytes": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = exp(%x) : f32[4] @arena[8]
      %2 = add(%0, %1) : f32[4]
      return %2""",
    "result over an operand that is not in place": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = relu(%0) : f32[4] @arena[0]
      %2 = add(%1, %w) : f32[4]
      return %2""",
    "workspace over an operand": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = exp(%0) workspace(%s: u8[4] @arena[12]) : f32[4]
      return %1""",
    "workspace over a result": """
      %0 = neg(%x) workspace(%s: u8[4] @arena[0]) : f32[4] @arena[0]
      %1 = exp(%0) : f32[4]
      return %1""",
    "workspace over a live value": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = exp(%w) workspace(%s: u8[4] @arena[4]) : f32[4] @arena[64]
      %2 = add(%0, %1) : f32[4]
      return %2""",
    "an unused result over a live value": """
      %0 = neg(%x) : f32[4] @arena[0]
      %1 = exp(%w) : f32[4] @arena[12]
      %2 = relu(%0) : f32[4]
      return %2""",
    "a concat slice overwritten in between": """
      %0 = neg(%x) : f32[4] alias %2[16] @arena[16]
      %1 = exp(%x) : f32[4] @arena[16]
      %2 = concat(%1, %0) {axis = 0} : f32[8] @arena[0]
      %3 = slice(%2) {starts = [2], stops = [6], steps = [1]} : f32[4]
      return %3""",
}


@pytest.mark.parametrize("name", SPOILED)
def test_arena_shows_overlaps(name: str) -> None:
    m = module(SPOILED[name])
    assert not np.array_equal(evaluate_in_arena(m, {"x": X})["0"], evaluate(m, {"x": X})["0"])


def test_a_storage_is_poisoned_after_its_last_use() -> None:
    m = module(
        "%0 = neg(%x) : f32[4] @arena[0]\n%1 = relu(%0) : f32[4] @arena[64]\n%2 = exp(%1) : f32[4]\nreturn %2",
    )
    run = ArenaRun(m.main, bind(m, m.main, {"x": X}), 0xFF)
    for index, op in enumerate(m.main.ops[:2]):
        run.step(index, op)
    assert np.isnan(run.read(m.main.ops[0].result)).all()
    np.testing.assert_array_equal(run.read(m.main.ops[1].result), [2, 1, 0, 0])


def test_writes_to_inputs_and_weights_are_caught() -> None:
    for name in ("x", "w"):
        text = f"%0 = relu(%{name}) plan {{in_place = 0}} : f32[4] alias %{name}[0]\n%1 = neg(%0) : f32[4]\nreturn %1"
        m = module(text, check=False)
        m.weights["w"] = -W
        with pytest.raises(CheckError, match=f"%{name}: expected its bytes unchanged by the run"):
            evaluate_in_arena(m, {"x": X})
    assert X.tolist() == [-2, -1, 1, 2]


def test_partial_overlap_of_an_in_place_operand_is_caught() -> None:
    ops = """
      %0 = concat(%x, %w) {axis = 0} : f32[8] @arena[0]
      %1 = slice(%0) {starts = [0], stops = [4], steps = [1]} : f32[4] alias %0[0] @arena[0]
      %2 = slice(%0) {starts = [1], stops = [5], steps = [1]} : f32[4] alias %0[4] @arena[4]
      %3 = add(%1, %2) plan {in_place = 0} : f32[4] alias %0[0] @arena[0]
      %4 = neg(%3) : f32[4]
      return %4"""
    with pytest.raises(CheckError, match=r"add %3: expected operand 1 \(%2\) apart from the bytes written in place"):
        evaluate_in_arena(module(ops, check=False), {"x": X})
    with pytest.raises(InvalidError, match=r"expected operand 1 \(%2\) apart from the result"):
        module(ops)


def test_plans_that_are_not_complete() -> None:
    with pytest.raises(InvalidError, match=r"%0: expected a placement \(run assign-addresses\), got none"):
        evaluate_in_arena(module("%0 = neg(%x) : f32[4]\n%1 = neg(%0) : f32[4]\nreturn %1"), {"x": X})
    for ops in ("return %x", "%0 = reshape(%x) {shape = [4]} : f32[4] alias %x[0]\nreturn %0"):
        with pytest.raises(InvalidError, match=r"expected a returned value with bytes of its own"):
            evaluate_in_arena(module(ops), {"x": X})
    twice = "%0 = neg(%x) : f32[4]\nreturn %0, %0"
    with pytest.raises(InvalidError, match=r"expected a returned value with bytes of its own"):
        evaluate_in_arena(module(twice, "(f32[4], f32[4])"), {"x": X})


def test_garbage_indices_are_an_error() -> None:
    ops = """
      %0 = cast(%x) {to = i64} : i64[4] @arena[0]
      %1 = neg(%x) : f32[4] @arena[0]
      %2 = gather(%w, %0) {axis = 0} : f32[4] @arena[64]
      %3 = add(%2, %1) : f32[4]
      return %3"""
    assert evaluate(module(ops), {"x": X})["0"].tolist() == [32, 41, 19, 28]
    with pytest.raises(InvalidError, match=r"op gather: index \d+ is out of range"):
        evaluate_in_arena(module(ops), {"x": X})


def test_donated_state() -> None:
    m = parse("""
    func @main(%x: f32[4] {role = input}, %m: f32[4] {role = state}) -> (f32[4] {name = "m"}) {
      %0 = add(%m, %x) plan {in_place = 0} : f32[4] alias %m[0]
      return %0
    }""")
    verify(m)
    state = W.copy()
    for run in (evaluate, evaluate_in_arena):
        np.testing.assert_array_equal(run(m, {"x": X, "m": state})["m"], [8, 19, 31, 42])
    np.testing.assert_array_equal(state, W)


def test_zero_size_and_scalar_values() -> None:
    m = parse("""
    func @main(%x: f32[0,3] {role = input}, %s: bf16[] {role = input}) -> (f32[0,3], bf16[], bool[]) {
      %0 = neg(%x) : f32[0,3] @arena[0]
      %1 = relu(%0) : f32[0,3]
      %2 = neg(%s) : bf16[] @arena[2]
      %3 = abs(%2) : bf16[]
      %4 = less(%2, %3) : bool[]
      return %1, %3, %4
    }""")
    verify(m)
    inputs = {"x": np.zeros((0, 3), np.float32), "s": np.array(1.5, ml_dtypes.bfloat16)}
    found = evaluate_in_arena(m, inputs)
    assert found["0"].shape == (0, 3) and found["1"] == 1.5 and bool(found["2"])

# SPDX-License-Identifier: Apache-2.0
"""Which ops of a planned function get code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from memc.ir.core import Op
from memc.ir.text.parser import parse
from memc.ir.verify.memory_plan import check_plan
from memc.runtime.code_target import CodeTarget
from memc.runtime.codegen.kernel_table import KernelTable
from memc.runtime.codegen.program import emit, missing_pieces, needs_no_code
from memc.runtime.execute.load import load

TEXT = """func @main(%x: f32[4,16] {role = input}) -> (f32[8,16] {name = "y"}) {
  %a = exp(%x) : f32[4,16] alias %y[FIRST]
  %b = reshape(%a) {shape = [4, 16]} : f32[4,16] alias %y[SECOND]
  %y = concat(%a, %b) {axis = 0} : f32[8,16]
  return %y
}
"""


def view(name: str, at: int, attrs: str, type: str, plan: str = "") -> Op:
    """An op on the 16 floats of %a, whose result lies `at` bytes into them."""
    text = f"""func @main(%x: f32[16] {{role = input}}) -> f32[4] {{
  %a = exp(%x) : f32[16] @arena[0]
  %b = {name}(%a) {{{attrs}}} plan {{{plan}}} : {type} alias %a[{at}] @arena[{at}]
  %y = "f.use"(%b) : f32[4]
  return %y
}}
"""
    return next(op for op in parse(text).main.ops if op.result.name == "b")


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (view("slice", 32, "starts = [8], stops = [12], steps = [1]", "f32[4]"), True),
        (view("slice", 0, "starts = [8], stops = [12], steps = [1]", "f32[4]"), False),
        (view("slice", 16, "starts = [8], stops = [12], steps = [1]", "f32[4]"), False),
        (view("reshape", 0, "shape = [4, 4]", "f32[4,4]"), True),
        (view("copy", 0, "", "f32[16]"), True),
        (view("neg", 0, "", "f32[16]", "in_place = 0"), False),
    ],
    ids=["its part", "another part", "part of both", "all of it", "onto itself", "no view"],
)
def test_a_view_needs_no_code_only_where_it_lies(op: Op, expected: bool) -> None:
    assert needs_no_code(op) is expected


def test_a_view_at_other_bytes_of_its_storage_is_copied(write: Callable) -> None:
    module = parse(TEXT.replace("FIRST", "0").replace("SECOND", "256"))
    check_plan(module, 64)
    x = np.random.default_rng(3).normal(size=(4, 16)).astype(np.float32)
    found = load(write(module))(x)["y"]
    np.testing.assert_array_equal(found[4:], found[:4])
    np.testing.assert_allclose(found[:4], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("alias %c[0]", "alias %c[64]", []),
        ("alias %c[0]", "@arena[256]", [("b", 4)]),
        ("alias %c[64]", "@arena[256]", None),  # Nothing lies where it has to.
        ("alias %c[64]", "alias %c[64]", [("a", 0)]),
        ("@arena[0]", "alias %c[64]", [("a", 0)]),  # As far from the start as %c's first part, but of another storage.
        ("@arena[0]", "@arena[64]", None),
    ],
)
def test_what_is_copied_into_a_concat(first: str, second: str, expected: list[tuple[str, int]] | None) -> None:
    text = f"""func @main(%x: f32[4,4] {{role = input}}) -> f32[4] {{
  %a = exp(%x) : f32[4,4] {first}
  %b = neg(%x) : f32[4,4] {second}
  %c = concat(%a, %b) {{axis = 0}} : f32[8,4] @arena[512]
  %y = "f.use"(%c) : f32[4]
  return %y
}}
"""
    concat = next(op for op in parse(text).main.ops if op.name == "concat")
    found = missing_pieces(concat)
    assert (None if found is None else [(value.name, start) for value, start in found]) == expected
    assert missing_pieces(next(op for op in parse(text).main.ops if op.name == "exp")) is None


def test_ops_without_code_are_not_called(write: Callable, make_module: Callable) -> None:
    text = """func @main(%x: f32[4,4] {role = input}, %z: f32[0,4] {role = input}) -> (f32[16] {name = "y"}, f32[0,4] {name = "n"}) {
  %k = constant() {value = dense<f32[]>[2.0]} : f32[]
  %a = mul(%x, %k) : f32[4,4] alias %y[0]
  %v = reshape(%a) {shape = [16]} : f32[16] alias %y[0]
  %y = exp(%v) plan {in_place = 0} : f32[16]
  %n = exp(%z) : f32[0,4]
  return %y, %n
}
"""
    module = parse(text)
    target = CodeTarget()
    program = emit(module.main, target, KernelTable(target))
    assert [module.main.ops[index].name for index, _ in program.calls] == ["mul", "exp"]
    x = np.random.default_rng(4).normal(size=(4, 4)).astype(np.float32)
    found = load(write(module))(x, np.zeros((0, 4), np.float32))
    np.testing.assert_allclose(found["y"], np.exp(2 * x).reshape(16), rtol=1e-6)
    assert found["n"].shape == (0, 4)


@pytest.mark.parametrize("order, offset", [("%a, %x", 0), ("%x, %a", 256)])
def test_a_part_is_copied_beside_what_lies_in_a_concat(write: Callable, order: str, offset: int) -> None:
    module = parse(f"""func @main(%x: f32[4,16] {{role = input}}) -> (f32[8,16] {{name = "y"}}) {{
  %a = exp(%x) : f32[4,16] alias %y[{offset}]
  %y = concat({order}) {{axis = 0}} : f32[8,16]
  return %y
}}
""")
    x = np.random.default_rng(5).normal(size=(4, 16)).astype(np.float32)
    found = load(write(module))(x)["y"]
    parts = [np.exp(x), x] if offset == 0 else [x, np.exp(x)]
    np.testing.assert_allclose(found, np.concatenate(parts), rtol=1e-6)

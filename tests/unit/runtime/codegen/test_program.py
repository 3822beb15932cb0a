# SPDX-License-Identifier: Apache-2.0
"""Which ops of a planned function get code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from memc.ir.core import Op
from memc.ir.text.parser import parse
from memc.ir.verify.memory_plan import check_plan
from memc.runtime.codegen.program import needs_no_code
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

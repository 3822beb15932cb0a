# SPDX-License-Identifier: Apache-2.0
"""Printer: canonical text is printed back letter for letter, and parsing keeps every bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from memc.ir.core import Array, Function, Op
from memc.ir.module import Module
from memc.ir.target import Target
from memc.ir.text.difference import difference, same_attr
from memc.ir.text.parser import parse
from memc.ir.types import DType

CANONICAL = """\
func @main(%x: f32[2,3] {role = input}, %"w:0": f32[3] @slab[64] {role = weight}, %s: f32[] {role = state}) -> \
(f32[6] {name = "y"}, f32[2,3] {name = "a \\"b\\""}) {
  %0 = constant() {value = dense<f32[2]>[0.1, -0.0]} : f32[2]
  %1 = relu(%x) plan {in_place = 0} : f32[2,3] alias %3[0] @arena[64]
  %2, %"2:1" = "aten.max"(%1, %"w:0") {dim = [1, 2], e = 1e-05, f = f16, g = [], h = [[true], "z"], "in dim" = 2} \
workspace(%ws: u8[128] @arena[0]) : f32[2], i64[2] loc("a/b")
  "print"(%2) : ()
  %3 = fused(%1, %1) {k = nan} region(%p: f32[2,3], %q: f32[2,3]) {
    %r = add(%p, %q) : f32[2,3]
    yield %r
  } : f32[2,3] @arena[64]
  %4 = reshape(%3) {shape = [6]} plan {joint = 3, lane = 1, mirror = 2, recompute = [0, 4]} : f32[6]
  %5 = matmul(%x, %"w:0") {k = 1} plan {library_kernel = "memc.cuda.matmul", precision = "tf32", rows = 0} : f32[2]
  return %4, %3
}

func @empty() -> () {
  return
}

func @one(%x: i64[0,4] {role = input}) -> i64[0,4] {
  return %x
}
"""


def round_trip(module: Module) -> Module:
    text = str(module)
    again = parse(text)
    assert difference(module, again) is None
    assert str(again) == text
    return again


def test_canonical_text_is_printed_back() -> None:
    assert str(parse(CANONICAL)) == CANONICAL


def test_parse_of_print_is_the_same_module() -> None:
    round_trip(parse(CANONICAL))
    round_trip(Module())


@pytest.mark.parametrize("target", [Target.of("cuda"), Target.of("cuda", "sm_80", 512), Target.of("llvm", alignment=1)])
def test_targets_are_kept(target: Target) -> None:
    module = parse(CANONICAL)
    module.target = target
    assert str(module).startswith(f'target {{kind = "{target.kind}", ')
    assert round_trip(module).target == target
    assert "target" in (difference(module, parse(CANONICAL)) or "")


@pytest.mark.parametrize("dtype", list(DType))
def test_dense_keeps_every_bit(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, size=200 * dtype.itemsize, dtype=np.uint8)
    array: Array = raw.view(dtype.numpy) if dtype is not DType.BOOL else raw > 127
    if dtype.is_float:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1e-40, 65504.0]).astype(dtype.numpy)
        array = np.concatenate([array, special, np.array([ml_dtypes.finfo(dtype.numpy).smallest_subnormal])])
    module = Module([Function([], [Op("constant", [], [], {"value": array})])])
    again = round_trip(module).main.ops[0].attrs["value"]
    assert same_attr(array, again)


def test_strings_with_anything_in_them() -> None:
    strings = ["", '"', "\\", "\n\r\t\0", "é 漢 😀", "\u2028\x85\ufeff", "\ud800", "// no comment", "%x"]
    module = Module([Function([], [Op(s or "op", [], [], {s: s}, location=s) for s in strings])])
    round_trip(module)


def test_words_of_the_grammar_as_names() -> None:
    text = 'func @func(%return: f32[] {role = input}) -> f32[] {\n  "return"(%return) {alias = 1, loc = f32, dense = [nan]} : ()\n  return %return\n}\n'
    assert str(parse(text)) == text


def test_difference_sees_each_part() -> None:
    for old, new in [
        ("-0.0]", "0.0]"),
        ("@arena[64]", "@arena[0]"),
        ("alias %3[0]", "alias %3[8]"),
        ("alias %3[0]", "alias %4[0]"),
        ("role = state", "role = input"),
        ('loc("a/b")', 'loc("a")'),
        ("return %4, %3", "return %4, %x"),
        ('"y"', '"z"'),
        ("e = 1e-05", "e = 1"),
        ("add(%p, %q)", "add(%q, %p)"),
        ("u8[128]", "u8[64]"),
        ("@one", "@two"),
        ('"print"(%2)', '"print"(%1)'),
    ]:
        changed = CANONICAL.replace(old, new, 1)
        assert changed != CANONICAL
        assert difference(parse(CANONICAL), parse(changed)) is not None, (old, new)

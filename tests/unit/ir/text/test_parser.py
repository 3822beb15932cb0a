# SPDX-License-Identifier: Apache-2.0
"""Parser: errors with line, column and caret; names, aliases and literals; speed."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from memc.ir.core import Role
from memc.ir.errors import InvalidError
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType


def op_text(text: str) -> str:
    """A module with one op in its function; the op starts at line 2, column 3."""
    return "func @main(%x: f32[2,3] {role = input}) -> () {\n  " + text + "\n  return\n}\n"


ERRORS = [
    ("", "fun", "1:1: expected `func` or `link` or `space` or `target` or the end, got `fun`"),
    ("", "func @main(", "1:12: expected `)` or a value (%name), got the end of the text"),
    ("", "func @a() -> () {return}\nfunc @a() -> () {return}", "2:6: expected each function once, got @a again"),
    ("", "func @a(%x: f32[2], %x: f32[2]) -> () {return}", "1:21: expected each name once in function @a, got %x"),
    (
        "",
        "func @a(%x: f32[-2]) -> () {return}",
        "1:13: expected dimensions that are non-negative integers, got `f32[-2]",
    ),
    (
        "",
        "func @a(%x: f32[2,]) -> () {return}",
        "1:13: expected dimensions that are non-negative integers, got `f32[2,]",
    ),
    ("", "func @a(%x: f32[9999999999999999999]) -> () {return}", "1:13: expected dimensions below 2^62"),
    ("", "func @a(%x: f32[4000000000,4000000000]) -> () {return}", "1:13: expected a tensor below 2^62 bytes"),
    ("", "func @a(%x: f32[0,4000000000,4000000000]) -> () {return}", "1:13: expected a tensor below 2^62 bytes"),
    ("", "func @a(%x: f31[2]) -> () {return}", "1:13: expected a type such as f32[1,3], got `f31`"),
    (
        "",
        "func @a(%x: f32[2] {role = weigth}) -> () {return}",
        "1:28: expected a role (input, weight, state), got weigth",
    ),
    ("", "func @a(%x: f32[2]) -> f32[3] {\n return %x}", "2:9: expected f32[3] as @a says, got f32[2]"),
    ("", "func @a(%x: f32[2]) -> (f32[2], f32[2]) {return %x}", "1:49: expected 2 returned values as @a says, got 1"),
    ("", 'func @a(%x: f32[2]) -> (f32[2] {name="p"}, f32[2]) {return %x,%x}', "1:6: expected names for all results"),
    (
        "op",
        "%y = reshpe(%x) {shape = [6]} : f32[6]",
        "2:8: expected a registered op, got reshpe; did you mean reshape?",
    ),
    ("op", "%y = reshape(%z) {shape = [6]} : f32[6]", "2:16: expected a value of function @main, got undefined %z"),
    (
        "op",
        '%Root = "a"(%x) : f32[6]\n  %y = "a"(%root) : f32[6]',
        "3:12: expected a value of function @main, got undefined %root; did you mean %Root?",
    ),
    (
        "op",
        '%y = "a"(%z) : f32[6]\n  %z = "a"() : f32[6]',
        "2:12: expected a value defined before its use, got %z of line 3",
    ),
    ("op", '%y, %z = "a"(%x) : f32[6]', "2:12: expected one type for each of the 2 results of a, got 1"),
    ("op", '%x = "a"(%x) : f32[6]', "2:3: expected each name once in function @main, got %x again"),
    ("op", '%y = "a"(%x) : f32[6] alias %q[0]', "2:31: expected a value of function @main, got undefined %q"),
    ("op", '%y = "a"(%x) : f32[6] alias %x[-4]', "2:34: expected a byte offset in [0, 2^62), got `-4`"),
    ("op", '"a"(%x) {k = 1, k = 2} : ()', "2:19: expected each attribute once, got `k` again"),
    ("op", '"a"(%x) {k = 99999999999999999999} : ()', "2:16: expected an integer of 64 bits"),
    ("op", '"a"(%x) {k = 1e999} : ()', "2:16: expected a float of 64 bits (or inf), got `1e999`"),
    ("op", '"a"(%x) {k = yes} : ()', "got `yes`"),
    ("op", '"a"(%x) {k = dense<i8[2]>[1]} : ()', "2:22: expected 2 elements for i8[2], got 1"),
    ("op", '"a"(%x) {k = dense<i8[1]>[128]} : ()', "2:29: expected an element of i8, got `128`"),
    ("op", '"a"(%x) {k = dense<i8[1]>[1.0]} : ()', "2:29: expected an element of i8, got `1.0`"),
    ("op", '"a"(%x) {k = dense<bool[1]>[1]} : ()', "2:31: expected an element of bool, got `1`"),
    ("op", '"a"(%x) {k = dense<f16[2]>[1.0, 1e5]} : ()', "2:35: expected a value in the range of f16, got `1e5`"),
    ("op", '"a"(%x) {k = dense<f32[1]>[[1.0]]} : ()', "2:22: expected a flat list of f32 elements"),
    ("op", '"\\q"(%x) : ()', "2:3: expected JSON string escapes"),
    ("op", '""(%x) : ()', "2:3: expected an op name, got an empty string"),
    ("op", "\x00", "got `\\x00`"),
]


@pytest.mark.parametrize(("kind", "text", "message"), ERRORS)
def test_error(kind: str, text: str, message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse(op_text(text) if kind == "op" else text, "f.memir")
    first, *rest = str(caught.value).split("\n")
    assert first.startswith("f.memir:") and message in first
    assert len(rest) == 2 and rest[1].strip() == "^"


def test_caret_points_at_the_column() -> None:
    with pytest.raises(InvalidError) as caught:
        parse(op_text('%y = "a"(%nope) : f32[6]'))
    assert str(caught.value).split("\n")[1:] == ['    %y = "a"(%nope) : f32[6]', "             ^"]


def test_caret_in_a_long_line() -> None:
    with pytest.raises(InvalidError) as caught:
        parse(op_text(f'"a"({"%x, " * 1000}%nope) : ()'))
    _, source, caret = str(caught.value).split("\n")
    assert len(source) < 140 and source[caret.index("^") :].startswith("%nope")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "]" * 100_000,
        "[" * 100_000,
        "{" * 100_000,
        "-" * 100_000,
        '"' + "a" * 100_000,
        "9" * 100_000,
        "f32[" + "1," * 100_000 + "1]",
    ],
)
def test_hostile_text_is_one_error(text: str) -> None:
    for whole in (text, op_text(text), op_text(f'"a"(%x) {{k = {text}}} : ()'), op_text(f'%y = "a"() : {text}')):
        with pytest.raises(InvalidError) as caught:
            parse(whole)
        assert all(len(line) < 500 for line in str(caught.value).split("\n"))


def test_nested_regions_are_limited() -> None:
    with pytest.raises(InvalidError, match="nested regions"):
        parse(op_text("fused() region() {" * 3000 + "yield" + "} : () yield" * 2999 + "} : ()"))


def test_every_prefix_is_valid_or_an_error() -> None:
    text = op_text(
        '%y, %z = "a"(%x) {k = [1, "b"], l = dense<f32[1]>[1.0]} workspace(%w: u8[4]) : f32[2], f32[] loc("q")'
    )
    for end in range(len(text)):
        try:
            parse(text[:end])
        except InvalidError:
            continue
        assert not text[:end].strip() or end >= len(text) - 1


def test_literals() -> None:
    text = '{a = -1, b = -0.0, c = inf, d = -inf, e = nan, f = true, g = "q\\"\\n\\u00e9", h = bf16, i = [], j = [[1], [2.0]]}'
    (op,) = parse(op_text(f'"a"() {text} : ()')).main.ops
    attrs = op.attrs
    assert attrs["a"] == -1 and type(attrs["a"]) is int
    assert str(attrs["b"]) == "-0.0"
    assert (attrs["c"], attrs["d"]) == (math.inf, -math.inf) and str(attrs["e"]) == "nan"
    assert attrs["f"] is True and attrs["g"] == 'q"\né' and attrs["h"] is DType.BF16
    assert attrs["i"] == () and attrs["j"] == ((1,), (2.0,))


def test_dense() -> None:
    (op,) = parse(op_text('"a"() {a = dense<bf16[2,1]>[0.1, nan], b = dense<bool[]>[true]} : ()')).main.ops
    a, b = op.attrs["a"], op.attrs["b"]
    assert isinstance(a, np.ndarray) and a.dtype == ml_dtypes.bfloat16 and a.shape == (2, 1)
    assert a.view(np.uint16)[0, 0] == 0x3DCD and np.isnan(a[1, 0])
    assert isinstance(b, np.ndarray) and b.shape == () and bool(b)


def test_forward_alias_and_placement() -> None:
    text = """
    func @main(%x: f32[2] {role = input}, %s: f32[2] {role = state}) -> (f32[4] {name = "y"}) {
      %a = "f"(%x) workspace(%w: u8[64] @arena[256]) : f32[2] alias %c[8] @arena[136]  // into the slice
      %c = "g"(%a, %s) : f32[4] @arena[128] loc("here")
      return %c
    }
    """
    function = parse(text).main
    first, second = function.ops
    alias = first.result.alias
    assert alias is not None and alias.root is second.result and alias.offset == 8
    assert first.workspace is not None and first.workspace.op is first and first.workspace.type.nbytes == 64
    assert second.result.placement is not None and second.result.placement.offset == 128
    assert second.location == "here" and function.result_names == ["y"]
    assert [p.role for p in function.params] == [Role.INPUT, Role.STATE]


def test_quoted_names() -> None:
    function = parse('func @"a b"(%"x:0": f32[] {role = input}) -> f32[] { return %"x:0" }').functions[0]
    assert (function.name, function.params[0].name) == ("a b", "x:0")
    assert function.params[0].type == TensorType(DType.F32, ())


def test_regions_have_names_of_their_own() -> None:
    text = "%y = fused(%x) region(%x: f32[2,3]) { %y = relu(%x) : f32[2,3] yield %y } : f32[2,3]"
    (op,) = parse(op_text(text)).main.ops
    assert op.region is not None and op.region.returns[0] is op.region.ops[0].result is not op.result
    with pytest.raises(InvalidError, match="expected a value of the region of fused, got undefined %x"):
        parse(op_text("%y = fused(%x) region(%p: f32[2,3]) { %q = relu(%x) : f32[2,3] yield %q } : f32[2,3]"))

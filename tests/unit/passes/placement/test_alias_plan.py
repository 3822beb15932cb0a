# SPDX-License-Identifier: Apache-2.0
"""Which results share bytes with which values, and the peak that a plan says it has."""

from __future__ import annotations

import pytest

from memc.ir.core import Function
from memc.ir.liveness import peak
from memc.ir.text.parser import parse
from memc.passes.placement.alias_plan import AliasPlan, aliased, plan_aliases, planned_peak
from memc.passes.placement.in_place import applied

ROW = 256
"""Bytes of an f32[64]."""


def function_of(body: str, results: str = "f32[64]") -> Function:
    """@main with the lines of `body`, a parameter %x: f32[64] and a state %s: f32[64]."""
    text = f"func @main(%x: f32[64] {{role = input}}, %s: f32[64] {{role = state}}) -> {results} {{\n{body}\n}}"
    return parse(text).main


def shared(plan: AliasPlan) -> dict[str, tuple[str, int]]:
    """The root and offset of every value that is not its own root."""
    return {value.name: (root.name, offset) for value, root, offset in aliased(plan)}


def planned(body: str, results: str = "f32[64]") -> tuple[dict[str, tuple[str, int]], int]:
    """What shares bytes, and the peak, which the function has once that is applied."""
    function = function_of(body, results)
    plan = plan_aliases(function)
    with applied(function, plan):
        assert peak(function) == plan.peak
    assert planned_peak(function, refine=True) == plan.peak
    return shared(plan), plan.peak


def test_operands_of_a_concat_are_slices_of_it() -> None:
    found = planned(
        """
  %a = exp(%x) : f32[64]
  %b = neg(%x) : f32[64]
  %c = concat(%a, %b) {axis = 0} : f32[128]
  %y = "use"(%c) : f32[64]
  return %y"""
    )
    assert found == ({"a": ("c", 0), "b": ("c", ROW)}, 2 * ROW)


@pytest.mark.parametrize(
    "concat, slices",
    [
        ("concat(%a, %a) {axis = 0} : f32[128]", {}),  # It would have to lie at two places.
        ("concat(%a, %x) {axis = 0} : f32[128]", {"a": ("c", 0)}),  # A parameter stays.
        ("concat(%h, %a) {axis = 0} : f32[72]", {"h": ("c", 0)}),  # Byte 32 is at no multiple of 64.
        ("concat(%h, %v) {axis = 0} : f32[72]", {"h": ("c", 0), "v": ("a", 0)}),
        ("concat(%v, %h) {axis = 0} : f32[72]", {"a": ("c", 0), "v": ("c", 0), "h": ("c", ROW)}),
        ("concat(%a, %v) {axis = 0} : f32[128]", {"a": ("c", 0), "v": ("c", 0)}),  # One storage at one place.
    ],
)
def test_what_may_be_a_slice(concat: str, slices: dict[str, tuple[str, int]]) -> None:
    found, _ = planned(
        f"""
  %a = exp(%x) : f32[64]
  %v = reshape(%a) {{shape = [64]}} : f32[64]
  %h = "make"(%x) : f32[8]
  %c = {concat}
  %y = "use"(%c) : f32[64]
  return %y"""
    )
    assert {name: where for name, where in found.items() if name != "v" or "%v" in concat} == slices


def test_a_returned_value_is_no_slice() -> None:
    found = planned(
        """
  %a = exp(%x) : f32[64]
  %b = neg(%x) : f32[64]
  %c = concat(%a, %b) {axis = 0} : f32[128]
  %y = "use"(%c) : f32[64]
  return %y, %a""",
        "(f32[64], f32[64])",
    )
    assert found == ({"b": ("c", ROW)}, 2 * ROW)


def test_a_slice_that_would_keep_a_large_concat_alive_for_long_is_none() -> None:
    found = planned(
        """
  %a = exp(%x) : f32[64]
  %t = "make"(%x) : f32[512]
  %u = "use"(%t) : f32[512]
  %b = "make"(%u) : f32[192]
  %c = concat(%a, %b) {axis = 0} : f32[256]
  %y = "use"(%c) : f32[64]
  return %y"""
    )
    # Beside the two of 2048 bytes, 256 for %a and not 1024.
    assert found == ({"b": ("c", ROW)}, 2 * 2048 + ROW)


def test_a_view_that_keeps_bytes_alive_is_made_where_the_peak_is_lower_with_it() -> None:
    """While the slice is copied, the copy is live beside all of %a. A careful plan has it, since %a is not live longer then."""
    found = planned(
        """
  %a = "make"(%x) : f32[32]
  %b = slice(%a) {starts = [16], stops = [32], steps = [1]} : f32[16]
  %c = slice(%x) {starts = [0], stops = [32], steps = [1]} : f32[32]
  %y = "use"(%b, %c) : f32[64]
  return %y"""
    )
    assert found == ({"b": ("a", 64), "c": ("x", 0)}, 128)


def test_a_view_that_keeps_bytes_alive_is_a_copy_where_the_peak_is_lower_without_it() -> None:
    found = planned(
        """
  %a = "make"(%x) : f32[64]
  %b = slice(%a) {starts = [32], stops = [64], steps = [1]} : f32[32]
  %c = exp(%x) : f32[64]
  %y = "use"(%b, %c) : f32[64]
  return %y"""
    )
    assert found == ({}, 128 + ROW)


def test_what_raises_the_peak_of_a_plan_is_taken_back() -> None:
    """A view of %a keeps all of it alive beside %e, which might lie over it otherwise."""
    body = """
  %a = "make"(%x) : f32[128]
  %b = add(%x, %x) : f32[64]
  %c = slice(%b) {starts = [0], stops = [32], steps = [1]} : f32[32]
  %d = slice(%a) {starts = [0], stops = [64], steps = [1]} : f32[64]
  %e = exp(%a) : f32[128]
  %f = "use"(%d) : f32[64]
  %y = "use"(%c, %e, %f) : f32[64]
  return %y"""
    assert planned(body) == ({"e": ("a", 0)}, 1152)
    assert plan_aliases(function_of(body), refine=False).peak == planned_peak(function_of(body)) == 1408


def test_all_slices_of_a_concat_at_once_may_be_better_than_the_last_ones() -> None:
    """A careful plan has %b alone in %c: %a, which is read later, would keep it alive."""
    body = """
  %a = "make"(%x) : f32[32]
  %b = slice(%a) {starts = [0], stops = [16], steps = [1]} : f32[16]
  %c = concat(%a, %b) {axis = 0} : f32[48]
  %d = slice(%c) {starts = [0], stops = [24], steps = [1]} : f32[24]
  %e = "use"(%a) : f32[128]
  %y = "use"(%d, %e) : f32[64]
  return %y"""
    found, reached = planned(body)
    assert found["a"] == ("c", 0) and reached == 704


def test_sizes_are_rounded_where_bytes_are_compared() -> None:
    """%a and %b take 64 bytes each, so that it costs nothing to keep one of them alive for the other."""
    found = planned(
        """
  %a = "make"(%x) : f32[12]
  %b = slice(%a) {starts = [0], stops = [8], steps = [1]} : f32[8]
  %c = "make"(%x) : f32[16]
  %y = "use"(%b, %c) : f32[64]
  return %y"""
    )
    assert found == ({"b": ("a", 0)}, 128)


def test_a_result_takes_over_what_nobody_reads_any_more() -> None:
    body = """
  %a = exp(%x) : f32[64]
  %b = neg(%a) : f32[64]
  %c = add(%a, %b) : f32[64]
  %d = mul(%c, %c) : f32[64]
  %y = "use"(%d) : f32[64]
  return %y"""
    function = function_of(body)
    plan = plan_aliases(function)
    assert {op.name: k for op, k in plan.in_place.items()} == {"add": 0, "mul": 0}
    assert planned(body) == ({"c": ("a", 0), "d": ("a", 0)}, 2 * ROW)


@pytest.mark.parametrize(
    "op, where",
    [
        ("neg(%a) : f32[64]", ("a", 0)),
        ("neg(%v) : f32[64]", ("a", 0)),
        ("neg(%h) : f32[32]", ("a", 128)),
        ("add(%a, %v) : f32[64]", None),  # Under two names, of which one might be read at other places.
        ("add(%h, %g) : f32[32]", ("a", 128)),  # Of two halves of one storage, over one.
        ("cast(%a) {to = f16} : f16[64]", None),
        ('"foreign"(%a) : f32[64]', None),
        ("neg(%x) : f32[64]", None),  # A parameter.
    ],
)
def test_what_may_be_overwritten(op: str, where: tuple[str, int] | None) -> None:
    result = op.rsplit(" : ", 1)[1]
    found, _ = planned(
        f"""
  %a = exp(%x) : f32[64]
  %v = reshape(%a) {{shape = [64]}} : f32[64]
  %h = slice(%a) {{starts = [32], stops = [64], steps = [1]}} : f32[32]
  %g = slice(%a) {{starts = [0], stops = [32], steps = [1]}} : f32[32]
  %r = {op}
  %z = "use"(%r) : {result}
  %y = "last"(%z) : f32[64]
  return %y"""
    )
    assert found.get("r") == where


@pytest.mark.parametrize("read, taken", [("%a", False), ("%v", False), ("%h", False), ("%g", True), ("%x", True)])
def test_bytes_that_are_read_later_are_not_overwritten(read: str, taken: bool) -> None:
    """%r may lie over %h, the second half, as long as nobody reads that by whatever name."""
    found, _ = planned(
        f"""
  %a = exp(%x) : f32[64]
  %v = reshape(%a) {{shape = [64]}} : f32[64]
  %h = slice(%a) {{starts = [32], stops = [64], steps = [1]}} : f32[32]
  %g = slice(%a) {{starts = [0], stops = [32], steps = [1]}} : f32[32]
  %r = neg(%h) : f32[32]
  %y = "use"(%r, {read}) : f32[64]
  return %y"""
    )
    assert ("r" in found) == taken


def test_a_view_of_a_state_that_is_read_after_its_new_content_is_none() -> None:
    body = """
  %v = reshape(%s) {shape = [8, 8]} : f32[8,8]
  %a = exp(%x) : f32[64]
  %n = assign(%s, %a) : f32[64]
  %y = "use"(%v) : f32[64]
  return %y, %n"""
    found, _ = planned(body, "(f32[64], f32[64])")
    assert "v" not in found and found["n"] == ("s", 0)
    before = body.replace("  %n =", '  %u = "use"(%v) : f32[64]\n  %n =').replace(
        '"use"(%v) : f32[64]\n  return', '"use"(%u) : f32[64]\n  return'
    )
    found, _ = planned(before, "(f32[64], f32[64])")
    assert found["v"] == ("s", 0) and found["n"] == ("s", 0)


def test_a_returned_value_lies_over_no_part_nor_over_another_one() -> None:
    found, _ = planned(
        """
  %a = "make"(%x) : f32[128]
  %h = slice(%a) {starts = [0], stops = [64], steps = [1]} : f32[64]
  %b = exp(%x) : f32[64]
  %w = reshape(%b) {shape = [64]} : f32[64]
  return %h, %b, %w""",
        "(f32[64], f32[64], f32[64])",
    )
    assert found == {}

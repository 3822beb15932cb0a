# SPDX-License-Identifier: Apache-2.0
"""The checker of plans: what an op may write over, and what must stay because it is read later."""

import pytest

from memc.ir.errors import CheckError
from memc.ir.text.parser import parse
from memc.ir.verify.memory_plan import check_plan


def accepted(text: str, alignment: int = 64) -> bool:
    try:
        check_plan(parse(text), alignment)
    except CheckError:
        return False
    return True


@pytest.mark.parametrize(
    ("step", "right"),
    [
        ("transpose(%a) {perm = [1, 0]} : f32[8,8] @arena[0]", False),
        ("neg(%a) : f32[8,8] @arena[0]", False),
        ("neg(%a) plan {in_place = 0} : f32[8,8] alias %a[0] @arena[0]", True),
        ("neg(%a) : f32[8,8] @arena[256]", True),
        ('"f.next"(%a) plan {in_place = 0} : f32[8,8] alias %a[0] @arena[0]', True),
        ('"f.next"(%a, %x) plan {in_place = 0} : f32[8,8] @arena[0]', True),
        ('"f.next"(%a, %x) plan {in_place = 1} : f32[8,8] @arena[0]', False),
        ('"f.next"(%a) : f32[8,8] @arena[0]', False),
    ],
)
def test_an_op_writes_over_what_it_reads_only_if_it_says_so(step, right):
    text = f"""func @main(%x: f32[8,8] {{role = input}}) -> f32[8,8] {{
  %a = exp(%x) : f32[8,8] @arena[0]
  %b = {step}
  %y = sin(%b) : f32[8,8]
  return %y
}}
"""
    assert accepted(text) is right


@pytest.mark.parametrize(("at", "right"), [(64, "%u, %w"), (0, "%v, %w"), (192, "%u, %v"), (256, "%u, %v")])
def test_parts_that_are_not_overwritten_stay(at, right):
    """Of four parts of 64 bytes: the first, the second, and the last two."""
    for read, kept in (("%u", "%u" in right), ("%v", "%v" in right), ("%w", "%w" in right or at == 256), (right, True)):
        parts = "".join(f'  "f.use"({part}) : ()\n' for part in read.split(", "))
        assert (
            accepted(f"""func @main(%x: f32[64] {{role = input}}) -> f32[16] {{
  %a = exp(%x) : f32[64] @arena[0]
  %u = slice(%a) {{starts = [0], stops = [16], steps = [1]}} : f32[16] alias %a[0] @arena[0]
  %v = slice(%a) {{starts = [16], stops = [32], steps = [1]}} : f32[16] alias %a[64] @arena[64]
  %w = slice(%a) {{starts = [32], stops = [64], steps = [1]}} : f32[32] alias %a[128] @arena[128]
  %s = slice(%x) {{starts = [0], stops = [16], steps = [1]}} : f32[16] @arena[{at}]
{parts}  %y = sin(%s) : f32[16]
  return %y
}}
""")
            is kept
        )


def test_an_operand_in_its_slice_stays_whole_beside_one_that_is_copied_there():
    text = """func @main(%x: f32[16] {role = input}) -> f32[16] {
  %a = exp(%x) : f32[16] @arena[256]
  %b = neg(%x) : f32[16] alias %c[64] @arena[64]
  %c = concat(%a, %b) {axis = 0} : f32[32] @arena[0]
  %y = add(%b, %READ) : f32[16]
  "f.use"(%c) : ()
  return %y
}
"""
    assert accepted(text.replace("%READ", "%a")) and accepted(text.replace("%READ", "%b"))
    assert not accepted(text.replace("%READ", "%a").replace("alias %c[64] @arena[64]", "alias %c[0] @arena[0]"))
    assert not accepted(text.replace("%READ", "%b").replace("@arena[256]", "@arena[0]"))  # Copied onto what is read.


def test_a_returned_value_that_is_part_of_another():
    text = """func @main(%x: f32[32] {role = input}) -> f32[16] {
  %a = exp(%x) : f32[32] @arena[0]
  %y = slice(%a) {starts = [0], stops = [16], steps = [1]} : f32[16] PLACE
  return %y
}
"""
    assert accepted(text.replace("PLACE", "")) and not accepted(text.replace("PLACE", "alias %a[0]"))


def test_a_returned_value_that_is_overwritten():
    text = """func @main(%x: f32[16] {role = input}) -> f32[16] {
  %y = exp(%x) : f32[16]
  %z = neg(%x) : f32[16] PLACE
  "f.use"(%z) : ()
  return %y
}
"""
    with pytest.raises(CheckError, match="return, %y: expected its data at byte 0 of its space, got %z"):
        check_plan(parse(text.replace("PLACE", "alias %y[0]")), 64)
    check_plan(parse(text.replace("PLACE", "@arena[0]")), 64)

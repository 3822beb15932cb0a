# SPDX-License-Identifier: Apache-2.0
"""Verifier, aliases, in-place ops and placements."""

from __future__ import annotations

import pytest

from memc.ir.core import Alias, Placement
from memc.ir.errors import InvalidError
from memc.ir.text.parser import parse
from memc.ir.verify.aliases import in_place_rule
from memc.ir.verify.structure import verify


def text(ops: str, result: str) -> str:
    header = "func @main(%x: f32[4] {role = input}, %w: f32[4] {role = weight}, %s: f32[4] {role = state})"
    lines = "".join(f"  {line.strip()}\n" for line in ops.strip().split("\n"))
    return f"{header} -> {result} {{\n{lines}}}\n"


VALID = {
    "in place": """
        %0 = neg(%x) : f32[4]
        %1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]
        return %1""",
    "in place, both operands the same": """
        %0 = neg(%x) : f32[4]
        %1 = add(%0, %0) plan {in_place = 0} : f32[4] alias %0[0]
        return %1""",
    "view of an input": """
        %0 = reshape(%x) {shape = [4]} : f32[4] alias %x[0]
        %1 = neg(%0) : f32[4]
        return %1""",
    "view that is copied": """
        %0 = reshape(%x) {shape = [4]} : f32[4]
        return %0""",
    "view of a later use": """
        %0 = neg(%x) : f32[4]
        %1 = reshape(%0) {shape = [4]} : f32[4] alias %0[0]
        %2 = add(%0, %1) : f32[4]
        return %2""",
    "concat slices, with an in-place op on the way": """
        %0 = neg(%x) : f32[4] alias %3[0]
        %1 = relu(%0) plan {in_place = 0} : f32[4] alias %3[0]
        %2 = neg(%w) : f32[4] alias %3[16]
        %3 = concat(%1, %2) {axis = 0} : f32[8]
        %4 = add(%1, %2) : f32[4]
        %5 = slice(%3) {starts = [0], stops = [4], steps = [1]} : f32[4] alias %3[0]
        %6 = add(%4, %5) : f32[4]
        return %6""",
    "concat with one operand copied": """
        %0 = neg(%x) : f32[4] alias %1[0]
        %1 = concat(%0, %0) {axis = 0} : f32[8]
        %2 = slice(%1) {starts = [4], stops = [8], steps = [1]} : f32[4] alias %1[16]
        %3 = neg(%2) : f32[4]
        return %3""",
    "a state updated in place": """
        %0 = add(%s, %x) plan {in_place = 0} : f32[4] alias %s[0]
        return %0""",
    "a new value of a donated state": """
        %0 = neg(%s) : f32[4]
        %1 = add(%0, %x) : f32[4] alias %s[0]
        return %1""",
    "a fused group in place": """
        %0 = neg(%x) : f32[4]
        %1 = fused(%0, %w) plan {in_place = 0} region(%a: f32[4], %b: f32[4]) {
          %c = add(%a, %b) : f32[4]
          %d = relu(%c) : f32[4]
          yield %d
        } : f32[4] alias %0[0]
        return %1""",
    "placements": """
        %0 = neg(%x) workspace(%ws: u8[8] @arena[64]) : f32[4] @arena[0]
        %1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0] @arena[0]
        %2 = neg(%1) : f32[4]
        return %2""",
}


@pytest.mark.parametrize("name", VALID)
def test_valid(name: str) -> None:
    verify(parse(text(VALID[name], "f32[4]")))


INVALID = {
    "root is an alias": (
        """
        %0 = neg(%x) : f32[4]
        %1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]
        %2 = relu(%1) plan {in_place = 0} : f32[4] alias %1[0]
        return %2""",
        "op 2 relu, value %2: expected the alias's root to be no alias itself, got %1",
    ),
    "alias of itself": (
        "%0 = neg(%x) : f32[4] alias %0[0]\nreturn %0",
        "expected the alias's root to be no alias itself",
    ),
    "alias of a workspace": (
        '%0 = "f"(%x) workspace(%ws: u8[64]) : f32[4] alias %ws[0]\nreturn %0',
        "expected an alias of a parameter or result of this function, got %ws",
    ),
    "alias out of range": (
        "%0 = neg(%x) : f32[4]\n%1 = reshape(%0) {shape = [4]} : f32[4] alias %0[4]\nreturn %1",
        "op 1 reshape, value %1: expected the alias's bytes inside the 16 bytes of %0, got [4, 20)",
    ),
    "alias without reason": (
        "%0 = neg(%x) : f32[4]\n%1 = neg(%x) : f32[4] alias %0[0]\nreturn %1",
        "op 1 neg, value %1: expected a view, an in_place operand or a concat slice behind the alias of %0",
    ),
    "in place without alias": (
        "%0 = neg(%x) : f32[4]\n%1 = relu(%0) plan {in_place = 0} : f32[4]\nreturn %1",
        "op 1 relu, value %1: expected the in-place result at %0[0] like its operand, got %1[0]",
    ),
    "in_place of a wrong kind": (
        "%0 = neg(%x) : f32[4]\n%1 = relu(%0) plan {in_place = 1} : f32[4] alias %0[0]\nreturn %1",
        "expected in_place to be the index of one of 1 operands, got 1",
    ),
    "in_place that the op does not allow": (
        "%0 = neg(%x) : f32[4]\n%1 = cumsum(%0) {axis = 0, exclusive = true, reverse = false} plan {in_place = 0} : f32[4] alias %0[0]\n"
        "return %1",
        "as cumsum allows, got 0",
    ),
    "alias on a constant": (
        "%0 = constant() {value = dense<f32[4]>[1.0, 2.0, 3.0, 4.0]} : f32[4] alias %1[0]\n"
        "%1 = concat(%0, %x) {axis = 0} : f32[8]\n%2 = slice(%1) {starts = [0], stops = [4], steps = [1]} : f32[4]\n"
        "return %2",
        "op 0 constant, value %0: expected no alias on a constant, got one to %1",
    ),
    "a smaller operand in place": (
        "%0 = neg(%x) : f32[4]\n%1 = broadcast(%0) {shape = [2, 4]} : f32[2,4]\n"
        "%2 = add(%1, %0) plan {in_place = 1} : f32[2,4] alias %0[0]\nreturn %0",
        "op 2 add, value %2: expected the alias's bytes inside the 16 bytes of %0, got [0, 32)",
    ),
    "write to an input": (
        "%0 = relu(%x) plan {in_place = 0} : f32[4] alias %x[0]\nreturn %0",
        "op 0 relu, value %0: expected no write to %x, which is an input, a weight or a constant",
    ),
    "write to a weight through a view": (
        "%0 = reshape(%w) {shape = [4]} : f32[4] alias %w[0]\n%1 = relu(%0) plan {in_place = 0} : f32[4] alias %w[0]\nreturn %1",
        "op 1 relu, value %1: expected no write to %w",
    ),
    "write to a constant": (
        "%0 = constant() {value = dense<f32[4]>[1.0, 2.0, 3.0, 4.0]} : f32[4]\n"
        "%1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]\nreturn %1",
        "op 1 relu, value %1: expected no write to %0",
    ),
    "operand read after it was overwritten": (
        "%0 = neg(%x) : f32[4]\n%1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]\n%2 = add(%0, %1) : f32[4]\nreturn %2",
        "op 1 relu, value %1: expected %0 to be unused after this op, which overwrites its bytes; got a use by op 2 add",
    ),
    "operand returned after it was overwritten": (
        "%0 = neg(%x) : f32[4]\n%1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]\nreturn %0",
        "got a use by return",
    ),
    "a view read after its root was overwritten": (
        "%0 = neg(%x) : f32[4]\n%1 = reshape(%0) {shape = [4]} : f32[4] alias %0[0]\n"
        "%2 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0]\n%3 = add(%1, %2) : f32[4]\nreturn %3",
        "op 2 relu, value %2: expected %1 to be unused after this op",
    ),
    "two writers of one slice": (
        "%0 = neg(%x) : f32[4] alias %2[0]\n%1 = exp(%x) : f32[4] alias %2[0]\n"
        "%2 = concat(%0, %1) {axis = 0} : f32[8]\n%3 = slice(%2) {starts = [0], stops = [4], steps = [1]} : f32[4]\n"
        "return %3",
        "value %1: expected a view, an in_place operand or a concat slice",
    ),
    "a slice at the wrong offset": (
        "%0 = neg(%x) : f32[4] alias %1[16]\n%1 = concat(%0, %x) {axis = 0} : f32[8]\n"
        "%2 = slice(%1) {starts = [0], stops = [4], steps = [1]} : f32[4]\nreturn %2",
        "op 0 neg, value %0: expected a view, an in_place operand or a concat slice behind the alias of %1",
    ),
    "a fused group that reads its in-place operand elsewhere": (
        "%0 = neg(%x) : f32[4]\n%1 = fused(%0) plan {in_place = 0} region(%a: f32[4]) {\n"
        "%m = reduce_max(%a) {axes = [0], keepdims = true} : f32[1]\n%b = sub(%a, %m) : f32[4]\nyield %b\n"
        "} : f32[4] alias %0[0]\nreturn %1",
        "op 1 fused: expected in_place to be one of [] as fused allows, got 0",
    ),
    "negative placement is not written, other space than the root's": (
        "%0 = neg(%x) : f32[4] @arena[0]\n%1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0] @arena[64]\nreturn %1",
        "op 1 relu, value %1: expected @arena[0] as its root %0 has it, got @arena[64]",
    ),
    "placed without its root": (
        "%0 = neg(%x) : f32[4]\n%1 = relu(%0) plan {in_place = 0} : f32[4] alias %0[0] @arena[64]\nreturn %1",
        "expected no placement as its root %0 has it, got @arena[64]",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name: str) -> None:
    ops, expected = INVALID[name]
    with pytest.raises(InvalidError) as caught:
        verify(parse(text(ops, "f32[4]")))
    first = str(caught.value).split("\n")[0]
    assert first.startswith("invalid IR: @main, op ") and expected in first, first


def test_two_results_on_the_same_bytes() -> None:
    ops = '%0 = neg(%x) : f32[4]\n%1, %2 = "f"(%0) plan {in_place = 0} : f32[4] alias %0[0], f32[4] alias %0[0]\nreturn %1'
    with pytest.raises(InvalidError, match="value %1: expected results on bytes of their own, got %2 on the same"):
        verify(parse(text(ops, "f32[4]")))


def test_an_in_place_operand_is_read_only_as_that() -> None:
    ops = """
        %0 = neg(%x) : f32[4]
        %1 = layer_norm(%0, %0) {axis = 0, epsilon = 1e-05} plan {in_place = 0} : f32[4] alias %0[0]
        return %1"""
    with pytest.raises(InvalidError, match=r"expected operand 1 \(%0\) apart from the result"):
        verify(parse(text(ops, "f32[4]")))
    verify(parse(text(ops.replace("(%0, %0)", "(%0, %w)"), "f32[4]")))


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ("%0 = exp(%p) : f32[4,4]\n%1 = add(%0, %q) : f32[4,4]", [0, 1]),
        ("%0 = transpose(%p) {perm = [1, 0]} : f32[4,4]\n%1 = add(%0, %q) : f32[4,4]", [1]),
        ("%0 = exp(%p) : f32[4,4]\n%1 = transpose(%0) {perm = [1, 0]} : f32[4,4]", [1]),
        ("%0 = add(%p, %q) : f32[4,4]\n%1 = transpose(%0) {perm = [1, 0]} : f32[4,4]", []),
        ("%0 = transpose(%p) {perm = [1, 0]} : f32[4,4]\n%1 = add(%0, %p) : f32[4,4]", [1]),
        ("%0 = reshape(%p) {shape = [16]} : f32[16]\n%1 = reshape(%0) {shape = [4,4]} : f32[4,4]", [0, 1]),
        ("%0 = softmax(%p) {axis = 1} : f32[4,4]\n%1 = mul(%0, %q) : f32[4,4]", [1]),
    ],
)
def test_what_a_group_may_overwrite(body: str, allowed: list[int]) -> None:
    """Operands that it reads only at the element it is about to write; one that it does not read at all, too."""
    module = parse(
        "func @main(%x: f32[4,4] {role = input}, %y: f32[4,4] {role = input}) -> f32[4,4] {\n"
        f"%r = fused(%x, %y) region(%p: f32[4,4], %q: f32[4,4]) {{\n{body}\nyield %1\n}} : f32[4,4]\nreturn %r\n}}"
    )
    assert list(in_place_rule(module.main.ops[0])) == allowed


def accepted(ops: str, result: str = "f32[4]") -> bool:
    try:
        verify(parse(text(ops, result)))
    except InvalidError:
        return False
    return True


@pytest.mark.parametrize(("place", "right"), [("arena[80]", True), ("arena[48]", False), ("arena[64]", False)])
def test_a_part_is_placed_where_its_root_has_it(place: str, right: bool) -> None:
    ops = f"""%0 = concat(%x, %x) {{axis = 0}} : f32[8] @arena[64]
        %1 = slice(%0) {{starts = [4], stops = [8], steps = [1]}} : f32[4] alias %0[16] @{place}
        %2 = neg(%1) : f32[4]
        return %2"""
    assert accepted(ops) is right


def test_bytes_before_a_root_or_a_space() -> None:
    ops = """%0 = concat(%x, %x) {axis = 0} : f32[8] @arena[64]
        %1 = slice(%0) {starts = [0], stops = [4], steps = [1]} : f32[4] alias %0[0]
        %2 = neg(%1) : f32[4]
        return %2"""
    for value, change in ((0, Placement("arena", -64)), (0, Placement("", 64)), (1, Alias)):
        module = parse(text(ops, "f32[4]"))
        verify(module)
        result = module.main.ops[value].result
        if isinstance(change, Placement):
            result.placement = change
        else:
            result.alias = Alias(module.main.ops[0].result, -16)
        with pytest.raises(InvalidError, match="non-negative offset|expected the alias's bytes inside"):
            verify(module)


def test_a_state_is_not_read_after_its_update() -> None:
    update = "%0 = add(%s, %x) plan {in_place = 0} : f32[4] alias %s[0]\n"
    assert accepted(f"%1 = neg(%s) : f32[4]\n{update}%2 = add(%0, %1) : f32[4]\nreturn %2")
    assert not accepted(f"{update}%1 = neg(%s) : f32[4]\n%2 = add(%0, %1) : f32[4]\nreturn %2")


@pytest.mark.parametrize(("second", "right"), [(16, True), (0, False), (8, False)])
def test_two_results_in_one_storage(second: int, right: bool) -> None:
    """They may, on bytes of their own; where they are no slices of it nothing says why."""
    ops = f"""%0, %1 = "f.two"(%x) : f32[4] alias %2[0], f32[4] alias %2[{second}]
        %2 = concat(%0, %1) {{axis = 0}} : f32[8]
        return %2"""
    assert accepted(ops, "f32[8]") is right


@pytest.mark.parametrize(("type", "at", "right"), [("f32[4]", 0, True), ("f32[2]", 0, False), ("f32[2]", 8, False)])
def test_a_foreign_op_takes_over_whole_operands(type: str, at: int, right: bool) -> None:
    ops = f"""%0 = neg(%x) : f32[4]
        %1 = "f.next"(%0) : {type} alias %0[{at}]
        return %1"""
    assert accepted(ops, type) is right

# SPDX-License-Identifier: Apache-2.0
"""Races in joint kernels: refused by the checker, and seen by the evaluation, which runs halves of the threads."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.errors import CheckError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.text.parser import parse
from memc.ir.verify.kernel_races import check_kernel_races
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager

TRANSPOSED = """func @main(%x: f32[8,8] {role = input}) -> f32[8,8] {
  %a = exp(%x) plan {joint = 0} : f32[8,8] @arena[0]
  %t = transpose(%a) {perm = [1, 0]} plan {joint = 0} : f32[8,8] @arena[256]
  %r = add(%t, %x) plan {joint = 0} : f32[8,8]
  return %r
}
"""

BROADCAST = """func @main(%x: f32[8] {role = input}, %y: f32[8,8] {role = input}) -> f32[8,8] {
  %e = exp(%y) plan {joint = 0} : f32[8,8] @arena[0]
  %b = neg(%x) : f32[8] @arena[512]
  %r = add(%e, %b) plan {joint = 0} : f32[8,8]
  return %r
}
"""

REUSED = """func @main(%x: f32[16] {role = input}) -> f32[16] {
  %a = exp(%x) : f32[16] @arena[0]
  %b = slice(%a) {starts = [0], steps = [2], stops = [16]} plan {joint = 0} : f32[8] @arena[64]
  %c = slice(%a) {starts = [1], steps = [2], stops = [16]} plan {joint = 0} : f32[8] @arena[128]
  %d = tanh(%b) plan {joint = 0} : f32[8] @arena[0]
  %e = concat(%c, %d) {axis = 0} : f32[16]
  return %e
}
"""

LANES = """func @main(%x: f32[8] {role = input}, %y: f32[8] {role = input}) -> (f32[8], f32[8]) {
  %a = exp(%x) plan {joint = 0, lane = 0} : f32[8] @arena[0]
  %r = neg(%a) plan {joint = 0, lane = 1} : f32[8]
  %s = tanh(%y) plan {joint = 0, lane = 1} : f32[8]
  return %r, %s
}
"""

ROWS = """func @main(%x: f32[4,32] {role = input}) -> f32[4,32] {
  %m = reduce_max(%x) {axes = [1], keepdims = true} plan {joint = 0, rows = 1} : f32[4,1] @arena[0]
  %d = sub(%x, %m) plan {joint = 0, rows = 1} : f32[4,32] @arena[64]
  %e = exp(%d) plan {in_place = 0, joint = 0, rows = 1} : f32[4,32] alias %d[0] @arena[64]
  %s = reduce_sum(%e) {axes = [1], keepdims = true} plan {joint = 0, rows = 1} : f32[4,1] @arena[0]
  %r = div(%e, %s) plan {joint = 0, rows = 1} : f32[4,32]
  return %r
}
"""

WHOLE = ROWS.replace("axes = [1]", "axes = [0, 1]").replace("rows = 1", "rows = 0").replace("f32[4,1]", "f32[1,1]")
"""The same with all values as one row."""

COLUMNS = ROWS.replace(
    "  %r = div",
    "  %c = reduce_max(%e) {axes = [0], keepdims = true} plan {joint = 0, rows = 1} : f32[1,32] @arena[1024]\n  %r = div",
)


def inputs_of(text: str) -> dict[str, np.ndarray]:
    """Seeded inputs of a module."""
    rng = np.random.default_rng(3)
    return {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in parse(text).main.params}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRANSPOSED, "it writes bytes that transpose %t reads (%a)"),
        (BROADCAST, "one after another, got others between"),
        (REUSED, "it writes bytes that slice %b reads (%a)"),
        (LANES, "it writes bytes that neg %r reads (%a)"),
        (COLUMNS, "expected rows of (4, 32)"),
    ],
)
def test_a_race_is_refused(text: str, message: str) -> None:
    module = parse(text)
    verify(module)
    with pytest.raises(CheckError, match="bad plan: @main") as caught:
        check_kernel_races(module)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [TRANSPOSED, REUSED])
def test_a_race_gives_other_values(text: str) -> None:
    """Evaluation in the arena does not take the order of the ops for granted."""
    given = inputs_of(text)
    (expected,) = evaluate(parse(text), given).values()
    (found,) = evaluate_in_arena(parse(text), given).values()
    assert not np.array_equal(found, expected)


@pytest.mark.parametrize("text", [ROWS, WHOLE])
def test_rows_that_need_only_their_own_are_accepted(text: str) -> None:
    """Also where all values are one row."""
    module = parse(text)
    check_kernel_races(module)
    given = inputs_of(text)
    (expected,) = evaluate(module, given).values()
    (found,) = evaluate_in_arena(module, given).values()
    assert found.tobytes() == expected.tobytes()


def test_ops_of_one_lane_may_follow_each_other() -> None:
    text = LANES.replace("neg(%a) plan {joint = 0, lane = 1}", "neg(%a) plan {joint = 0, lane = 0}")
    check_kernel_races(parse(text))


@pytest.mark.parametrize("seed", range(12))
def test_what_the_passes_join_runs_in_any_order(random_module, seed: int) -> None:
    """Kernels that the passes put together pass the checker, and have the same bits by halves of their threads."""
    module, inputs = random_module(seed, ops=20)
    expected = evaluate(module, inputs)
    text = "materialize-returns,fuse,in-place,assign-addresses,join-rows,join-kernels"
    PassManager.parse(text).run(module)
    check_kernel_races(module)
    for name, array in evaluate_in_arena(module, inputs).items():
        assert array.tobytes() == np.ascontiguousarray(expected[name]).tobytes()


def test_the_manager_blames_the_pass() -> None:
    """A pass whose joint kernels race is named."""
    module = parse(TRANSPOSED)
    with pytest.raises(CheckError, match="after pass find-last: bad plan"):
        PassManager.parse("find-last").run(module)


@pytest.mark.parametrize(("at", "refused"), [(0, False), (256, True)])
def test_a_view_between_them_that_is_copied_is_refused(at: int, refused: bool) -> None:
    """A view that lies where it looks makes no code; at other bytes of the same storage it is a copy."""
    module = parse(f"""func @main(%x: f32[4,16] {{role = input}}) -> (f32[8,16], f32[4,16]) {{
  %a = exp(%x) plan {{joint = 0}} : f32[4,16] alias %c[0]
  %b = reshape(%a) {{shape = [4, 16]}} : f32[4,16] alias %c[{at}]
  %d = neg(%x) plan {{joint = 0}} : f32[4,16]
  %c = concat(%a, %b) {{axis = 0}} : f32[8,16]
  return %c, %d
}}
""")
    if not refused:
        check_kernel_races(module)
        return
    with pytest.raises(CheckError, match="@main, neg, %d: expected the ops of joint kernel 0 one after another"):
        check_kernel_races(module)


def accepted(text: str) -> bool:
    try:
        check_kernel_races(parse(text))
    except CheckError as error:
        assert (
            "in the same kernel" in str(error) or "expected `rows`" in str(error) or "one after another" in str(error)
        )
        return False
    return True


@pytest.mark.parametrize(("at", "right"), [(64, True), (32, True), (16, False), (0, False)])
def test_lanes_may_lie_side_by_side(at: int, right: bool) -> None:
    """In one space, as long as they have no bytes in common."""
    text = f"""func @main(%x: f32[8] {{role = input}}, %y: f32[8] {{role = input}}) -> f32[8] {{
  %a = exp(%x) plan {{joint = 0, lane = 0}} : f32[8] @arena[0]
  %b = tanh(%y) plan {{joint = 0, lane = 1}} : f32[8] @arena[{at}]
  %r = add(%a, %b) : f32[8]
  return %r
}}
"""
    assert accepted(text) is right


@pytest.mark.parametrize(("rows", "right"), [(0, True), (1, True), (2, True), (3, False)])
def test_rows_are_told_apart_by_no_axis_to_all(rows: int, right: bool) -> None:
    text = f"""func @main(%x: f32[4,8] {{role = input}}) -> f32[4,8] {{
  %a = exp(%x) plan {{joint = 0, rows = {rows}}} : f32[4,8] @arena[0]
  %r = neg(%a) plan {{joint = 0, rows = {rows}}} : f32[4,8]
  return %r
}}
"""
    assert accepted(text) is right


@pytest.mark.parametrize(("first", "second", "right"), [("exp", "neg", True), ("exp", "T", False), ("T", "neg", False)])
@pytest.mark.parametrize("rows", ["", ", rows = 1"])
def test_a_group_reads_what_its_ops_read(first: str, second: str, right: bool, rows: str) -> None:
    """A group that moves elements, whichever of its ops does, reads those that other threads write."""

    def step(name: str, operand: str) -> str:
        return f"transpose({operand}) {{perm = [1, 0]}}" if name == "T" else f"{name}({operand})"

    text = f"""func @main(%x: f32[8,8] {{role = input}}) -> f32[8,8] {{
  %a = sin(%x) plan {{joint = 0{rows}}} : f32[8,8] @arena[0]
  %r = fused(%a) plan {{joint = 0{rows}}} region(%p: f32[8,8]) {{
    %0 = {step(first, "%p")} : f32[8,8]
    %1 = {step(second, "%0")} : f32[8,8]
    yield %1
  }} : f32[8,8]
  return %r
}}
"""
    assert accepted(text) is right


def test_a_view_in_bytes_of_its_own_is_a_copy() -> None:
    text = """func @main(%x: f32[4,4] {role = input}) -> f32[4,4] {
  %a = exp(%x) plan {joint = 0} : f32[4,4] @arena[0]
  %v = reshape(%a) {shape = [16]} : f32[16] PLACE
  %r = neg(%x) plan {joint = 0} : f32[4,4]
  "f.use"(%v) : ()
  return %r
}
"""
    assert accepted(text.replace("PLACE", "alias %a[0] @arena[0]"))
    assert not accepted(text.replace("PLACE", "@arena[64]"))


@pytest.mark.parametrize(("at", "right"), [(1024, True), (0, False)])
def test_numbers_of_rows_that_another_op_has_made_are_not_overwritten(at: int, right: bool) -> None:
    text = f"""func @main(%x: f32[4,32] {{role = input}}) -> f32[4,32] {{
  %n = reduce_max(%x) {{axes = [1], keepdims = true}} : f32[4,1] @arena[512]
  %m = neg(%n) : f32[4,1] @arena[0]
  %d = sub(%x, %m) plan {{joint = 0, rows = 1}} : f32[4,32] @arena[2048]
  %s = reduce_sum(%d) {{axes = [1], keepdims = true}} plan {{joint = 0, rows = 1}} : f32[4,1] @arena[{at}]
  %r = div(%d, %s) plan {{joint = 0, rows = 1}} : f32[4,32]
  return %r
}}
"""
    assert accepted(text) is right


def test_a_library_kernel_is_no_part_of_a_joint_one() -> None:
    for attrs in ('library_kernel = "memc.cpu.matmul"', "joint = 0"):
        text = f"""func @main(%x: f32[4,4] {{role = input}}) -> f32[4,4] {{
  %a = exp(%x) plan {{joint = 0}} : f32[4,4] @arena[0]
  %r = neg(%a) plan {{joint = 0, {attrs}}} : f32[4,4]
  return %r
}}
""".replace("joint = 0, joint = 0", "joint = 0")
        if "library_kernel" in text:
            with pytest.raises(
                CheckError, match="@main, neg, %r: expected one result, no workspace and no library kernel"
            ):
                check_kernel_races(parse(text))
        else:
            assert accepted(text)

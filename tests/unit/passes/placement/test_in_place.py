# SPDX-License-Identifier: Apache-2.0
"""In-place ops, views and zero-copy concat: what is aliased, what must not be, and that values stay right."""

import numpy as np
import pytest

from memc.ir.core import Role
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes, peak
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

PLAN = "materialize-returns,in-place,assign-addresses{solver=best-fit}"


def checked(text, passes=PLAN):
    """The module after `passes`; evaluation in the arena must equal plain evaluation, and inputs stay as they are."""
    plain, module = parse(text), parse(text)
    PassManager.parse(passes).run(module)
    numbers = np.random.default_rng(0)
    inputs = {
        p.name: numbers.integers(1, 5, p.type.shape).astype(p.type.dtype.numpy)
        for p in plain.main.params_of(Role.INPUT)
    }
    before = {name: value.copy() for name, value in inputs.items()}
    expected = evaluate(plain, inputs)
    found = evaluate_in_arena(module, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
    for name, value in inputs.items():
        np.testing.assert_array_equal(value, before[name])
    return module


def test_view_of_a_state_is_a_copy_if_it_is_read_after_the_new_content_is_written():
    text = """
func @main(%x: f32[64] {role = input}, %s: f32[64] {role = state}) -> (f32[8,8], f32[64]) {
  %v = reshape(%s) {shape = [8, 8]} : f32[8,8]
  %b = add(%s, %x) : f32[64]
  %n = assign(%s, %b) : f32[64]
  %y = neg(%v) : f32[8,8]
  return %y, %n
}
"""
    module = parse(text)
    PassManager.parse(PLAN).run(module)  # Which verifies that nothing reads overwritten bytes.
    assert value(module, "v").root is value(module, "v")
    assert value(module, "n").root is value(module, "s")


def function(body, result="f32[4,16]", params="%x: f32[4,16] {role = input}", returned="y"):
    return f"func @main({params}) -> {result} {{\n{body}\n  return %{returned}\n}}\n"


def value(module, name):
    return next(v for v in module.main.values() if v.name == name)


def root(module, name):
    return value(module, name).root.name


def test_chain_lives_in_the_output():
    module = checked(function("%a = exp(%x) : f32[4,16]\n%b = relu(%a) : f32[4,16]\n%y = neg(%b) : f32[4,16]"))
    assert [root(module, n) for n in "aby"] == ["a", "a", "a"]
    assert [op.plan.in_place for op in module.main.ops] == [None, 0, 0]
    assert arena_bytes(module.main) == 0


def test_input_is_never_overwritten():
    module = checked(function("%y = relu(%x) : f32[4,16]"))
    assert value(module, "y").alias is None


@pytest.mark.parametrize(
    "alias",
    [
        "copy(%s)",
        "reshape(%s) {shape = [4, 16]}",
        "cast(%s) {to = f32}",
        "slice(%s) {starts=[0,0],stops=[4,16],steps=[1,1]}",
    ],
)
@pytest.mark.parametrize("passes", [PLAN, pipeline(0), pipeline(1), pipeline(2)])
def test_alias_keeps_its_source_alive(alias, passes):
    body = f"""%c1 = constant() {{value = dense<f32[1]>[3.0]}} : f32[1]
      %c2 = constant() {{value = dense<f32[1]>[5.0]}} : f32[1]
      %s = add(%x, %c1) : f32[4,16]
      %l = {alias} : f32[4,16]
      %s2 = mul(%s, %c2) : f32[4,16]
      %r = add(%s2, %c2) : f32[4,16]
      %y = add(%l, %r) : f32[4,16]"""
    checked(function(body), passes)


def test_two_views_of_one_storage():
    body = """%s = exp(%x) : f32[4,16]
      %a = reshape(%s) {shape = [4,1,16]} : f32[4,1,16]
      %b = reshape(%s) {shape = [4,1,16]} : f32[4,1,16]
      %p = mul(%a, %b) : f32[4,1,16]
      %y = concat(%p, %b) {axis = 1} : f32[4,2,16]"""
    module = checked(function(body, "f32[4,2,16]"))
    assert root(module, "a") == root(module, "b") == "s"
    assert root(module, "p") != "s"


def test_same_value_on_both_sides():
    module = checked(function("%a = exp(%x) : f32[4,16]\n%b = mul(%a, %a) : f32[4,16]\n%y = neg(%b) : f32[4,16]"))
    assert root(module, "b") == "a"


def test_other_operand_at_another_position():
    # The transposed view of a is read elsewhere than where the sum is written.
    body = """%a = exp(%x) : f32[8,8]
      %r = reshape(%a) {shape = [64,1]} : f32[64,1]
      %b = reshape(%a) {shape = [1,64]} : f32[1,64]
      %m = add(%r, %b) : f32[64,64]
      %y = relu(%m) : f32[64,64]"""
    checked(function(body, "f32[64,64]", "%x: f32[8,8] {role = input}"))
    body = """%a = exp(%x) : f32[1,16]
      %b = reshape(%a) {shape = [16,1]} : f32[16,1]
      %c = reshape(%a) {shape = [16,1]} : f32[16,1]
      %y = add(%b, %c) : f32[16,1]"""
    module = checked(function(body, "f32[16,1]", "%x: f32[1,16] {role = input}"))
    assert root(module, "y") == "y"  # b and c are different values over the same bytes: not taken


def test_broadcast_operand_is_not_overwritten():
    body = "%a = exp(%x) : f32[1,16]\n%b = relu(%a) : f32[1,16]\n%y = add(%b, %z) : f32[4,16]"
    module = checked(function(body, params="%x: f32[1,16] {role = input}, %z: f32[4,16] {role = input}"))
    assert root(module, "y") == "y"


def test_later_reader_forbids_in_place():
    body = "%a = exp(%x) : f32[4,16]\n%b = relu(%a) : f32[4,16]\n%y = add(%b, %a) : f32[4,16]"
    module = checked(function(body))
    assert root(module, "b") != "a" and module.main.ops[1].plan.in_place is None


def test_returned_value_read_later():
    text = """func @main(%x: f32[4,16] {role = input}) -> (f32[4,16], f32[4,16]) {
      %a = exp(%x) : f32[4,16]
      %b = relu(%a) : f32[4,16]
      return %a, %b
    }"""
    assert root(checked(text), "b") == "b"


@pytest.mark.parametrize("passes", [PLAN, pipeline(0), pipeline(1), pipeline(2)])
def test_returned_inputs_constants_and_duplicates(passes):
    text = """func @main(%x: f32[4,16] {role = input}) -> (f32[4,16], f32[2], f32[4,16], f32[4,16], f32[64], f32[64]) {
      %c = constant() {value = dense<f32[2]>[1.0, 2.0]} : f32[2]
      %a = exp(%x) : f32[4,16]
      %v = reshape(%x) {shape = [64]} : f32[64]
      %w = reshape(%a) {shape = [64]} : f32[64]
      return %x, %c, %a, %a, %v, %w
    }"""
    module = checked(text, passes)
    roots = [v.root for v in module.main.returns]
    assert len(set(roots)) == 6 and all(r.op is not None and r.op.name != "constant" for r in roots)


def test_split_uses_views_at_aligned_offsets():
    body = """%a = exp(%x) : f32[6,16]
      %s0 = slice(%a) {starts=[0,0], stops=[2,16], steps=[1,1]} : f32[2,16]
      %s1 = slice(%a) {starts=[2,0], stops=[4,16], steps=[1,1]} : f32[2,16]
      %s2 = slice(%a) {starts=[4,0], stops=[6,16], steps=[1,1]} : f32[2,16]
      %p = mul(%s0, %s1) : f32[2,16]
      %y = add(%p, %s2) : f32[2,16]"""
    module = checked(function(body, "f32[2,16]", "%x: f32[6,16] {role = input}"))
    assert [value(module, n).offset_in_root for n in ("s0", "s1", "s2")] == [0, 128, 256]
    assert peak(module.main) == 384


def test_unaligned_slice_is_copied():
    body = """%a = exp(%x) : f32[6,4]
      %s = slice(%a) {starts=[1,0], stops=[3,4], steps=[1,1]} : f32[2,4]
      %y = neg(%s) : f32[2,4]"""
    text = function(body, "f32[2,4]", "%x: f32[6,4] {role = input}")
    assert root(checked(text), "s") == "s"
    module = checked(text, "in-place{alignment=16},assign-addresses{solver=best-fit alignment=16}")
    assert (root(module, "s"), value(module, "s").offset_in_root) == ("a", 16)


def test_small_slice_of_a_big_value_is_copied_if_the_big_one_would_live_on():
    body = """%big = broadcast(%x) {shape = [64,16]} : f32[64,16]
      %s = slice(%big) {starts=[0,0], stops=[1,16], steps=[1,1]} : f32[1,16]
      %t = exp(%x) : f32[1,16]
      %big2 = broadcast(%t) {shape = [64,16]} : f32[64,16]
      %r = reduce_sum(%big2) {axes = [0], keepdims = true} : f32[1,16]
      %y = add(%r, %s) : f32[1,16]"""
    module = checked(function(body, "f32[1,16]", "%x: f32[1,16] {role = input}"))
    assert root(module, "s") != "big"
    assert peak(module.main) <= 4096 + 128


def test_reshaped_view_used_last_keeps_the_bytes():
    chain = "\n".join(f"%c{i + 1} = exp(%c{i}) : f32[4,16]" for i in range(8))
    body = f"""%c0 = neg(%x) : f32[4,16]
      %v = reshape(%c0) {{shape = [64]}} : f32[64]
      {chain}
      %f = reshape(%c8) {{shape = [64]}} : f32[64]
      %y = add(%f, %v) : f32[64]"""
    module = checked(function(body, "f32[64]"))
    assert root(module, "v") == "c0"


def test_concat_is_written_slice_by_slice():
    body = """%a = exp(%x) : f32[4,16]
      %b = neg(%x) : f32[4,16]
      %c = concat(%a, %b) {axis = 0} : f32[8,16]
      %third = relu(%a) : f32[4,16]
      %m = reduce_sum(%third) {axes = [0], keepdims = true} : f32[1,16]
      %y = add(%c, %m) : f32[8,16]"""
    module = checked(function(body, "f32[8,16]"))
    assert root(module, "a") == root(module, "b") == root(module, "c")
    assert [value(module, n).offset_in_root - value(module, "c").offset_in_root for n in "ab"] == [0, 256]
    assert root(module, "third") != root(module, "a")


def test_concat_of_the_same_value_twice_and_of_an_input():
    body = "%a = exp(%x) : f32[4,16]\n%y = concat(%a, %a, %x) {axis = 0} : f32[12,16]"
    module = checked(function(body, "f32[12,16]"))
    assert root(module, "a") == "a"


def test_concat_of_a_value_and_a_view_of_it():
    # The value is written into slice 0; slice 1 is copied from there.
    body = """%a = exp(%x) : f32[4,16]
      %v = reshape(%a) {shape = [4,16]} : f32[4,16]
      %c = concat(%v, %a) {axis = 0} : f32[8,16]
      %y = neg(%c) : f32[8,16]"""
    module = checked(function(body, "f32[8,16]"))
    assert root(module, "a") == root(module, "v") == root(module, "c")


def test_value_in_two_concats():
    body = """%a = exp(%x) : f32[4,16]
      %b = neg(%x) : f32[4,16]
      %c = concat(%a, %b) {axis = 0} : f32[8,16]
      %d = concat(%b, %a) {axis = 0} : f32[8,16]
      %y = add(%c, %d) : f32[8,16]"""
    checked(function(body, "f32[8,16]"))


def test_early_slice_is_not_worth_holding_the_whole_concat():
    # A skip connection: c would be live, with room for the late half, through the large values in between.
    body = """%skip = exp(%x) : f32[64,16]
      %l = neg(%skip) : f32[64,16]
      %w = concat(%l, %l, %l, %l) {axis = 0} : f32[256,16]
      %late = reduce_sum(%w) {axes = [0], keepdims = true} : f32[1,16]
      %late2 = broadcast(%late) {shape = [64,16]} : f32[64,16]
      %c = concat(%skip, %late2) {axis = 0} : f32[128,16]
      %y = reduce_sum(%c) {axes = [0], keepdims = true} : f32[1,16]"""
    module = checked(function(body, "f32[1,16]", "%x: f32[64,16] {role = input}"))
    assert root(module, "skip") == "skip" and root(module, "late2") == "c"
    assert peak(module.main) == 4096 * 6


def test_unused_results_are_reserved():
    # The kernel of a foreign op writes both results: neither may lie over the live %a.
    text = function(
        """%a = exp(%x) : f32[4,16]
      %v, %i = "vendor.pool_with_indices"(%x) : f32[4,16], i64[4,16]
      %b = relu(%a) : f32[4,16]
      %y = reduce_sum(%b) {axes = [0], keepdims = true} : f32[1,16]""",
        "f32[1,16]",
    )
    module = parse(text)
    PassManager.parse(PLAN).run(module)
    intervals = [(v.placement.offset, v.placement.offset + v.type.nbytes) for v in (value(module, n) for n in "avi")]
    assert peak(module.main) == 256 + 256 + 512
    assert all(a[1] <= b[0] or b[1] <= a[0] for a in intervals for b in intervals if a is not b)


def test_zero_size_values():
    body = """%a = exp(%x) : f32[0,16]
      %s = slice(%a) {starts=[0,0], stops=[0,16], steps=[1,1]} : f32[0,16]
      %b = relu(%s) : f32[0,16]
      %y = concat(%b, %z) {axis = 0} : f32[4,16]"""
    checked(function(body, params="%x: f32[0,16] {role = input}, %z: f32[4,16] {role = input}"))


def test_arena_of_disjoint_lifetimes():
    # 1024 bytes live [0, 2), then 448 and 512 bytes live together: the arena holds the larger set, not the sum.
    body = """%a = exp(%x) : f32[16,16]
      %s = reduce_sum(%a) {axes = [0, 1], keepdims = true} : f32[1,1]
      %b = broadcast(%s) {shape = [7,16]} : f32[7,16]
      %c = broadcast(%s) {shape = [8,16]} : f32[8,16]
      %y = matmul(%c, %b) {transpose_a = false, transpose_b = true} : f32[8,7]"""
    module = checked(function(body, "f32[8,7]", "%x: f32[16,16] {role = input}"))
    assert arena_bytes(module.main) == peak(module.main) == 1024 + 64


def test_runs_only_once():
    module = checked(
        function("%a = exp(%x) : f32[4,16]\n%y = neg(%a) : f32[4,16]"), PLAN + ",in-place,assign-addresses"
    )
    assert root(module, "y") == "a"

# SPDX-License-Identifier: Apache-2.0
"""The checker rejects corrupted plans: each test breaks one thing in a plan that it accepts."""

import random
from dataclasses import replace

import numpy as np
import pytest

from memc.ir.core import Alias, Op, Placement, Value
from memc.ir.errors import CheckError, MemcError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import arena_bytes
from memc.ir.text.parser import parse
from memc.ir.types import DType, TensorType
from memc.ir.verify.memory_plan import check_plan, has_placements
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline

TEXT = """
func @main(%x: f32[4,16] {role = input}, %w: f32[16,16] {role = input}) -> f32[8,16] {
  %a = exp(%x) : f32[4,16]
  %b = matmul(%a, %w) {transpose_a = false, transpose_b = false} : f32[4,16]
  %c = relu(%b) : f32[4,16]
  %d = add(%c, %a) : f32[4,16]
  %e = reshape(%d) {shape = [64]} : f32[64]
  %f = reshape(%e) {shape = [4,16]} : f32[4,16]
  %g = neg(%x) : f32[4,16]
  %h = concat(%f, %g) {axis = 0} : f32[8,16]
  %y = matmul(%h, %w) {transpose_a = false, transpose_b = false} : f32[8,16]
  return %y
}
"""


@pytest.fixture
def planned():
    module = parse(TEXT)
    PassManager.parse("in-place,assign-addresses").run(module)
    check_plan(module, 64, arena_bytes(module.main))
    return module


def value(module, name):
    return next(v for v in module.main.values() if v.name == name)


def rejected(module, words, alignment=64, size=None):
    with pytest.raises(CheckError, match=words) as error:
        check_plan(module, alignment, size)
    assert "\n" not in str(error.value)


def test_plan_uses_every_kind_of_alias(planned):
    assert value(planned, "c").root is value(planned, "b").root
    assert value(planned, "f").root is value(planned, "g").root is value(planned, "h")


def test_two_live_values_at_one_address(planned):
    value(planned, "b").placement = value(planned, "a").placement
    for name in "cd":
        value(planned, name).placement = None
    rejected(planned, "expected bytes apart from operand 0|expected its data")


def test_value_overwritten_before_its_last_use():
    module = parse(TEXT)
    PassManager.parse("assign-addresses{solver=none}").run(module)
    value(module, "c").placement = value(module, "a").placement
    rejected(module, r"op 3 add, %a: expected its data at byte \d+ of its space, got %c")


def test_alias_moved(planned):
    value(planned, "g").alias = Alias(value(planned, "h"), 0)
    value(planned, "g").placement = None
    rejected(planned, "expected its data")


def test_in_place_where_the_op_does_not_allow_it(planned):
    op = value(planned, "b").op
    op.plan = replace(op.plan, in_place=0)
    value(planned, "b").alias = Alias(value(planned, "a").root, value(planned, "a").offset_in_root)
    for name in "bcd":
        value(planned, name).placement = None
    value(planned, "c").alias = value(planned, "d").alias = value(planned, "b").alias
    rejected(planned, r"op 1 matmul, %b: expected in_place to be one of \[\], got 0")


def test_alias_of_a_value_read_later():
    module = parse(TEXT)
    PassManager.parse("assign-addresses{solver=none}").run(module)
    value(module, "c").alias = Alias(value(module, "a"), 0)
    value(module, "c").placement = None
    rejected(module, r"op 3 add, %a: expected its data at byte 0 of its space, got %c")


def test_misaligned(planned):
    other = value(planned, "h")
    for v in planned.main.values():
        if v.root is other:
            v.placement = Placement("arena", v.placement.offset + 32)
    rejected(planned, "expected an address that is a multiple of 64, got")
    check_plan(planned, 32)


def test_negative_and_beyond_the_arena(planned):
    size = arena_bytes(planned.main)
    rejected(planned, f"expected to end within {size - 64} bytes, got {size}", size=size - 64)
    storage = [v for v in planned.main.values() if v.root is value(planned, "b")]
    assert {v.name for v in storage} >= {"b", "c"}
    for v in storage:
        v.placement = Placement("arena", v.offset_in_root - 64)
    rejected(planned, "%b: expected an address that is a multiple of 64, got -64", size=size)


def test_missing_placement(planned):
    value(planned, "h").placement = None
    rejected(planned, "expected %h to be placed")


def test_placement_that_contradicts_the_root(planned):
    value(planned, "g").placement = Placement("arena", 4096)
    rejected(planned, r"%g: expected @arena\[\d+\] as its root's placement says")


def test_write_to_an_input():
    module = parse(TEXT.replace("%g = neg(%x)", "%g = neg(%x) plan {in_place = 0}"))
    value(module, "g").alias = Alias(value(module, "x"), 0)
    for v in module.main.values():
        if v.op is not None and v.alias is None:
            v.placement = Placement("arena", 256 * 2 * int(len(v.name)) * (ord(v.name[0]) - 96))
    rejected(module, "%g: expected no write to %x, which must not change")


@pytest.mark.parametrize("offset", ["operand", "result"])
def test_workspace_over_live_bytes(offset):
    module = parse(TEXT)
    PassManager.parse("assign-addresses{solver=none}").run(module)
    op = value(module, "b").op
    op.workspace = Value("w0", TensorType(DType.U8, (64,)), op)
    op.workspace.placement = value(module, "a" if offset == "operand" else "b").placement
    rejected(module, "op 1 matmul, %w0: expected bytes apart from")
    op.workspace.placement = Placement("arena", arena_bytes(module.main))
    check_plan(module, 64)


def test_workspace_too_small_for_a_kernel_of_several_results():
    module = parse("""
func @main(%x: f32[300,2] {role = input}) -> (f32[300,2], i64[300,2]) {
  %v, %i = top_k(%x) {axis = 0, k = 300, largest = false} : f32[300,2], i64[300,2]
  return %v, %i
}
""")
    PassManager.parse("decompose{target=llvm},assign-addresses").run(module)  # Which adds the workspace.
    op = value(module, "v").op
    least = op.workspace.type.nbytes
    op.workspace = None
    rejected(module, f"%v: expected a workspace of at least {least} bytes for {op.plan.library_kernel}, got 0")


def test_workspace_too_small_for_its_library_kernel():
    module = parse("""
func @main(%x: f32[2,8,9,9] {role = input}, %g: f32[2,8,9,9] {role = input}) -> f32[8,8,3,3] {
  %w = conv_grad_weight(%x, %g) {strides = [1,1], pads = [1,1,1,1], dilations = [1,1], group = 1, kernel = [3,3]} : f32[8,8,3,3]
  %y = relu(%w) : f32[8,8,3,3]
  return %y
}
""")
    PassManager.parse("select-kernels{target=cuda workspace=least slow-flops=0},assign-addresses").run(module)
    check_plan(module, 64)
    op = value(module, "w").op
    placement, least = op.workspace.placement, op.workspace.type.nbytes
    op.workspace = Value("smaller", TensorType(DType.U8, (least - 1,)), op, placement=placement)
    rejected(
        module, f"%w: expected a workspace of at least {least} bytes for memc.cuda.conv_grad_weight, got {least - 1}"
    )
    for smaller in (Value("smaller", TensorType(DType.U8, (least - 1,)), op), None):
        op.workspace = smaller
        PassManager.parse("select-kernels{target=cuda workspace=least}").run(module)
        assert op.workspace is not None and op.workspace.type.nbytes == least
    op.workspace = None
    rejected(module, "got 0")


@pytest.mark.parametrize("returns", ["%x", "%a, %a"])
def test_returns_without_a_buffer_of_their_own(returns):
    types = ", ".join(["f32[4,16]"] * (returns.count(",") + 1))
    module = parse(
        f"func @main(%x: f32[4,16] {{role = input}}) -> ({types}) {{\n%a = exp(%x) : f32[4,16]\nreturn {returns}\n}}"
    )
    for v in module.main.ops[0].results:
        v.placement = Placement("arena", 0)
    rejected(module, "run materialize-returns")


def corrupt(module, rng: random.Random) -> bool:
    """Move one placed storage somewhere else inside the arena."""
    roots = [v for v in module.main.values() if v.placement is not None and v.alias is None and v.type.nbytes]
    if not roots:
        return False
    root = rng.choice(roots)
    target = rng.choice(roots).placement.offset + rng.choice((0, 0, 64))
    if target == root.placement.offset:
        return False
    for v in module.main.values():
        if v.root is root and v.placement is not None:
            v.placement = Placement("arena", target + v.offset_in_root)
    return True


@pytest.mark.parametrize("seed", range(60))
def test_accepts_exactly_the_plans_that_compute_the_right_values(random_module, seed):
    """Whatever the checker accepts gives right values in the poisoned arena."""
    rng = random.Random(seed)
    plain, inputs = random_module(seed, 30)
    expected = evaluate(plain, inputs)
    module, _ = random_module(seed, 30)
    PassManager.parse(pipeline(rng.choice((0, 1, 2)))).run(module)
    if not corrupt(module, rng):
        return
    try:
        check_plan(module, 64)
        accepted = True
    except CheckError:
        accepted = False
    try:
        found = evaluate_in_arena(module, inputs)
        right = all(np.allclose(found[n], v, rtol=1e-4, atol=1e-5) for n, v in expected.items())
    except MemcError:
        right = False
    if accepted:
        assert right


def test_rejections_happen(random_module):
    """Most random moves break a plan: the property above is not empty."""
    outcomes = []
    for seed in range(100):
        rng = random.Random(seed)
        module, _ = random_module(seed, 30)
        PassManager.parse(pipeline(0)).run(module)
        if corrupt(module, rng):
            try:
                check_plan(module, 64)
                outcomes.append(True)
            except CheckError:
                outcomes.append(False)
    assert outcomes.count(False) >= 10 and outcomes.count(True) >= 1


def test_concat_over_its_own_operand():
    """A concat may not be written over an operand that lies anywhere but in its slice."""
    module = parse(TEXT)
    PassManager.parse("assign-addresses{solver=none}").run(module)
    h = value(module, "h")
    h.placement = Placement("arena", value(module, "f").placement.offset - 256)
    rejected(module, "%h: expected bytes apart from operand")
    assert isinstance(h.op, Op)


def test_offsets_in_a_root_are_aligned(planned):
    text = """func @main(%x: f32[32] {role = input}) -> f32[16] {
  %a = exp(%x) : f32[32] @arena[0]
  %u = slice(%a) {starts = [8], stops = [24], steps = [1]} : f32[16] alias %a[32] @arena[32]
  %y = sin(%u) : f32[16]
  return %y
}
"""
    with pytest.raises(CheckError, match="op 1 slice, %u: expected an offset in its root that is a multiple of 64"):
        check_plan(parse(text), 64)
    check_plan(parse(text), 32)


def test_whether_anything_is_placed(planned):
    assert has_placements(planned) and not has_placements(parse(TEXT))

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from memc.ir.core import Role
from memc.ir.liveness import peak
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager
from memc.passes.rewrite.canonicalize import attribute_key

from .canonicalize_cases import checked, computing, function, names


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("%c = constant() {value = dense<f32[]>[-0.0]} : f32[]\n%i = add(%x, %c) : f32[4,8]", []),
        # Not an identity: -0.0 + 0.0 is 0.0.
        ("%c = constant() {value = dense<f32[]>[0.0]} : f32[]\n%i = add(%x, %c) : f32[4,8]", ["constant", "add"]),
        ("%c = constant() {value = dense<f32[1]>[1.0]} : f32[1]\n%i = mul(%c, %x) : f32[4,8]", []),
        ("%c = constant() {value = dense<f32[]>[1.0]} : f32[]\n%i = div(%x, %c) : f32[4,8]", []),
        ("%c = constant() {value = dense<f32[]>[1.0]} : f32[]\n%i = pow(%x, %c) : f32[4,8]", []),
        ("%c = constant() {value = dense<f32[]>[0.0]} : f32[]\n%i = sub(%x, %c) : f32[4,8]", []),
        # Not identities: 0 - x, 1 / x.
        ("%c = constant() {value = dense<f32[]>[0.0]} : f32[]\n%i = sub(%c, %x) : f32[4,8]", ["constant", "sub"]),
        ("%c = constant() {value = dense<f32[]>[1.0]} : f32[]\n%i = div(%c, %x) : f32[4,8]", ["constant", "div"]),
        ("%i = cast(%x) {to = f32} : f32[4,8]", []),
        ("%i = reshape(%x) {shape = [4,8]} : f32[4,8]", []),
        ("%i = copy(%x) : f32[4,8]", []),
        ("%i = broadcast(%x) {shape = [4,8]} : f32[4,8]", []),
        ("%i = concat(%x) {axis = 0} : f32[4,8]", []),
        ("%i = slice(%x) {starts=[0,0], stops=[4,8], steps=[1,1]} : f32[4,8]", []),
        ("%i = slice(%x) {starts=[3,0], stops=[-1,8], steps=[-1,1]} : f32[4,8]", ["slice"]),
        ("%i = transpose(%x) {perm = [0,1]} : f32[4,8]", []),
        ("%t = transpose(%x) {perm = [1,0]} : f32[8,4]\n%i = transpose(%t) {perm = [1,0]} : f32[4,8]", []),
        ("%r = reshape(%x) {shape = [32]} : f32[32]\n%i = reshape(%r) {shape = [4,8]} : f32[4,8]", []),
        ('%i = pad(%x) {low = [0,0], high = [0,0], mode = "constant", value = 0.0} : f32[4,8]', []),
    ],
)
def test_identities(body, left):
    module = checked(function(body + "\n%y = exp(%i) : f32[4,8]", "f32[4,8]"))
    assert names(module) == [*left, "exp"]


def test_growing_operand_is_no_identity():
    body = "%c = constant() {value = dense<f32[2,1]>[0.0, 0.0]} : f32[2,1]\n%y = add(%x, %c) : f32[2,8]"
    module = checked(function(body, "f32[2,8]", "%x: f32[1,8] {role = input}"))
    assert names(module) == ["constant", "add"]


def test_transposes_compose_and_unit_axes_reshape():
    body = """%t = transpose(%x) {perm = [1,2,0]} : f32[8,3,4]
      %u = transpose(%t) {perm = [1,2,0]} : f32[3,4,8]
      %y = neg(%u) : f32[3,4,8]"""
    module = checked(function(body, "f32[3,4,8]", "%x: f32[4,8,3] {role = input}"))
    assert names(module) == ["transpose", "neg"] and module.main.ops[0].attrs["perm"] == (2, 0, 1)
    body = "%t = transpose(%x) {perm = [2,0,1]} : f32[1,4,8]\n%y = neg(%t) : f32[1,4,8]"
    assert names(checked(function(body, "f32[1,4,8]", "%x: f32[4,8,1] {role = input}"))) == ["reshape", "neg"]


def test_empty_operands_leave_a_concat():
    body = "%c = concat(%x, %e, %x) {axis = 0} : f32[8,8]\n%y = neg(%c) : f32[8,8]"
    params = "%x: f32[4,8] {role = input}, %e: f32[0,8] {role = input}"
    module = checked(function(body, "f32[8,8]", params))
    assert [len(op.operands) for op in module.main.ops] == [2, 1]
    body = "%y = concat(%x, %x) {axis = 0} : f32[8,0]"
    assert names(checked(function(body, "f32[8,0]", "%x: f32[4,0] {role = input}"))) == ["concat"]


def test_broadcast_before_elementwise_is_implicit():
    body = "%b = broadcast(%z) {shape = [4,8]} : f32[4,8]\n%y = add(%x, %b) : f32[4,8]"
    params = "%x: f32[4,8] {role = input}, %z: f32[8] {role = input}"
    assert names(checked(function(body, "f32[4,8]", params))) == ["add"]
    body = "%b = broadcast(%z) {shape = [4,8]} : f32[4,8]\n%y = exp(%b) : f32[4,8]"
    assert names(checked(function(body, "f32[4,8]", "%z: f32[8] {role = input}"))) == ["broadcast", "exp"]


def test_common_subexpressions():
    body = """%a = exp(%x) : f32[4,8]
      %b = exp(%x) : f32[4,8]
      %c = add(%a, %z) : f32[4,8]
      %d = add(%z, %b) : f32[4,8]
      %e = sub(%a, %z) : f32[4,8]
      %f = sub(%z, %b) : f32[4,8]
      %g = mul(%c, %d) : f32[4,8]
      %h = mul(%e, %f) : f32[4,8]
      %y = add(%g, %h) : f32[4,8]"""
    params = "%x: f32[4,8] {role = input}, %z: f32[4,8] {role = input}"
    module = checked(function(body, "f32[4,8]", params))
    assert names(module) == ["exp", "add", "sub", "sub", "mul", "mul", "add"]


def test_attributes_count_with_their_type_and_bits():
    assert attribute_key(1) != attribute_key(1.0) != attribute_key(True)
    assert attribute_key(0.0) != attribute_key(-0.0)
    assert attribute_key((1, 2)) == attribute_key((1, 2)) != attribute_key((1, 3))
    assert attribute_key(np.zeros(2, np.float32)) != attribute_key(np.zeros(2, np.int32))
    assert attribute_key(float("nan")) == attribute_key(float("nan"))


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("", "recompute = [1]", False),
        ("recompute = [1]", "recompute = [2]", False),
        ("recompute = [1]", "recompute = [1]", True),
        ("", "mirror = 1", True),
        ('library_kernel = "memc.cuda.matmul"', "", True),
        ('library_kernel = "memc.cuda.matmul"', 'library_kernel = "memc.cuda.matmul", precision = "tf32"', False),
    ],
)
def test_equal_ops_are_merged_whatever_is_planned_of_bytes_and_launches(first: str, second: str, merged: bool) -> None:
    product = "matmul(%x, %x) {transpose_a = false, transpose_b = true}"
    ops = [f"%{n} = {product} plan {{{plan}}} : f32[4,4]" for n, plan in (("a", first), ("b", second))]
    module = checked(function("\n".join([*ops, "%y = add(%a, %b) : f32[4,4]"]), "f32[4,4]"))
    assert names(module) == (["matmul", "add"] if merged else ["matmul", "matmul", "add"])
    assert module.main.ops[0].plan.library_kernel == ("memc.cuda.matmul" if "memc" in first else None)


def test_cse_that_would_raise_the_peak_is_left_out():
    # The wide value is needed again after a step that itself needs much: keeping it would raise the peak.
    body = """%w = broadcast(%x) {shape = [64,16]} : f32[64,16]
      %s = reduce_sum(%w) {axes = [0], keepdims = true} : f32[1,16]
      %e = exp(%s) : f32[1,16]
      %v = broadcast(%e) {shape = [128,16]} : f32[128,16]
      %t = reduce_max(%v) {axes = [0], keepdims = true} : f32[1,16]
      %w2 = broadcast(%x) {shape = [64,16]} : f32[64,16]
      %m = matmul(%w2, %q) {transpose_a = false, transpose_b = false} : f32[64,1]
      %u = reduce_max(%m) {axes = [0,1], keepdims = true} : f32[1,1]
      %y = add(%u, %t) : f32[1,16]"""
    text = function(body, "f32[1,16]", "%x: f32[1,16] {role = input}, %q: f32[16,1] {role = input}")
    assert peak(checked(text).main) <= peak(parse(text).main)


def test_constants_fold_by_size():
    body = """%c = constant() {value = dense<f32[2]>[1.0, 2.0]} : f32[2]
      %d = add(%c, %c) : f32[2]
      %i = iota() {shape = [4,2], axis = 0, dtype = f32} : f32[4,2]
      %e = add(%i, %d) : f32[4,2]
      %y = mul(%x, %e) : f32[4,2]"""
    text = function(body, "f32[4,2]", "%x: f32[4,2] {role = input}")
    module = checked(text)
    assert names(module) == ["constant", "mul"]
    np.testing.assert_array_equal(module.main.ops[0].attrs["value"], [[2, 4], [3, 5], [4, 6], [5, 7]])
    kept = checked(text, passes="canonicalize{fold-limit=0}")
    assert names(kept) == ["constant", "iota", "add", "mul"]


def test_weights_fold_and_unused_ones_go():
    body = "%t = transpose(%w) {perm = [1,0]} : f32[8,6]\n%y = matmul(%x, %t) {transpose_a=false,transpose_b=false} : f32[4,6]"
    params = "%x: f32[4,8] {role = input}, %w: f32[6,8] {role = weight}, %unused: f32[3] {role = weight}"
    weights = {"w": np.arange(48, dtype=np.float32).reshape(6, 8), "unused": np.ones(3, np.float32)}
    module = checked(function(body, "f32[4,6]", params), weights)
    assert names(module) == ["matmul"]
    (weight,) = module.main.params_of(Role.WEIGHT)
    np.testing.assert_array_equal(module.weights.pop(weight.name), weights["w"].T)
    assert module.weights == {}


def test_unused_inputs_and_foreign_ops_stay():
    text = """func @main(%x: f32[4] {role = input}, %z: f32[4] {role = input}) -> f32[4] {
      %a = "vendor.log"(%x) : f32[4]
      %b = neg(%x) : f32[4]
      %y = exp(%x) : f32[4]
      return %y
    }"""
    module = parse(text)
    PassManager.parse("canonicalize").run(module)
    assert names(module) == ["vendor.log", "exp"] and len(module.main.params) == 2


def test_planned_functions_are_left_alone():
    text = function("%a = exp(%x) : f32[4,8]\n%b = exp(%x) : f32[4,8]\n%y = add(%a, %b) : f32[4,8]", "f32[4,8]")
    module = parse(text)
    PassManager.parse("in-place,canonicalize,fuse").run(module)
    assert names(module) == ["exp", "exp", "add"]


def steps(*bounds: tuple[int, int]) -> str:
    """Attributes of a slice with step 1."""
    starts, stops = zip(*bounds)
    return f"{{starts = {list(starts)}, stops = {list(stops)}, steps = {[1] * len(bounds)}}}"


PAIR = "%x: f32[4,8] {role = input}, %z: f32[2,8] {role = input}"


def test_slice_within_one_part_of_a_concat() -> None:
    body = f"""  %a = exp(%x) : f32[4,8]
  %b = exp(%z) : f32[2,8]
  %c = concat(%a, %b) {{axis = 0}} : f32[6,8]
  %y = slice(%c) {steps((4, 5), (1, 7))} : f32[1,6]"""
    assert names(checked(function(body, "f32[1,6]", PAIR))) == ["exp", "slice"]


def test_slice_across_parts_of_a_concat_stays() -> None:
    body = f"""  %c = concat(%x, %z) {{axis = 0}} : f32[6,8]
  %y = slice(%c) {steps((3, 5), (0, 8))} : f32[2,8]"""
    assert names(checked(function(body, "f32[2,8]", PAIR))) == ["concat", "slice"]


def test_slice_of_a_concat_that_others_read_stays() -> None:
    body = f"""  %c = concat(%x, %z) {{axis = 0}} : f32[6,8]
  %s = slice(%c) {steps((0, 4), (0, 8))} : f32[4,8]
  %y = exp(%s) : f32[4,8]
  %w = exp(%c) : f32[6,8]"""
    module = checked(function(body, "(f32[4,8], f32[6,8])", PAIR, "%y, %w"))
    assert names(module) == ["concat", "slice", "exp", "exp"]


def test_slice_of_a_reshaped_and_transposed_concat() -> None:
    body = f"""  %a = exp(%x) : f32[4,8]
  %b = exp(%z) : f32[2,8]
  %c = concat(%a, %b) {{axis = 0}} : f32[6,8]
  %r = reshape(%c) {{shape = [3,2,8]}} : f32[3,2,8]
  %t = transpose(%r) {{perm = [1,2,0]}} : f32[2,8,3]
  %y = slice(%t) {steps((0, 2), (0, 8), (2, 3))} : f32[2,8,1]"""
    module = checked(function(body, "f32[2,8,1]", PAIR))
    assert names(module) == ["exp", "reshape"]


def test_slice_of_a_transpose_is_taken_first() -> None:
    body = """  %t = transpose(%x) {perm = [1,0]} : f32[8,4]
  %y = slice(%t) {starts = [7, 0], stops = [1, 3], steps = [-3, 2]} : f32[2,2]"""
    module = checked(function(body, "f32[2,2]"))
    assert names(module) == ["slice", "transpose"]


def test_a_run_that_is_no_box_of_a_concat_stays_a_slice_of_the_reshape() -> None:
    body = f"""  %c = concat(%x, %z) {{axis = 0}} : f32[6,8]
  %r = reshape(%c) {{shape = [4,12]}} : f32[4,12]
  %y = slice(%r) {steps((0, 1), (0, 12))} : f32[1,12]"""
    assert names(checked(function(body, "f32[1,12]", PAIR))) == ["concat", "reshape", "slice"]


@pytest.mark.parametrize(
    ("op", "left"),
    [
        ("broadcast(%x) {shape = [1, 4, 8]} : f32[1,4,8]", "reshape"),
        ("broadcast(%x) {shape = [2, 4, 8]} : f32[2,4,8]", "broadcast"),
        ("reshape(%x) {shape = [4, 1, 8]} : f32[4,1,8]\n%w = transpose(%v) {perm = [1, 0, 2]} : f32[1,4,8]", "reshape"),
        (
            "reshape(%x) {shape = [4, 1, 8]} : f32[4,1,8]\n%w = transpose(%v) {perm = [2, 0, 1]} : f32[8,4,1]",
            "transpose",
        ),
    ],
)
def test_what_moves_no_element_is_a_view(op, left):
    name, result = ("w" if "%w" in op else "v"), op.rsplit(" : ", 1)[1]
    module = checked(function(f"%v = {op}\n%y = exp(%{name}) : {result}", result))
    assert computing(module)[-2:] == [left, "exp"]

# SPDX-License-Identifier: Apache-2.0
"""The detector of races between copies and other ops: small plans, right and wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from memc.frontend.memir import verified
from memc.ir.core import Array
from memc.ir.errors import CheckError, InvalidError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.liveness import lifetimes, space_bytes
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.passes.manager import PassManager

PLAN = "in-place,assign-addresses"


def planned(text: str, pipeline: str = PLAN) -> Module:
    module = verified(parse(text), "text")
    PassManager.parse(pipeline).run(module)
    check_plan(module, module.target.alignment)
    check_copy_races(module)
    return module


def same_bits(text: str, inputs: dict[str, Array], weights: dict[str, Array] | None = None) -> Module:
    """The planned module of `text`, which gives the bits of its plain evaluation wherever its copies run."""
    module = planned(text)
    module.weights.update(weights or {})
    expected = evaluate(module, inputs)
    for times in ("start", "done", *range(8)):
        found = evaluate_in_arena(module, inputs, copies=times)
        assert {name: v.tobytes() for name, v in found.items()} == {name: v.tobytes() for name, v in expected.items()}
    return module


def refuse(text: str, message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_copy_races(parse(text))
    with pytest.raises(InvalidError):
        verified(parse(text), "text")


SLOT = """
func @main(%x: f32[64] {role = input}) -> f32[64] {
  %a = relu(%x) : f32[64] @arena[0]
  %a0 = offload_start(%a) {lane = "d2h"} : f32[64] @host[0]
  %b = neg(%x) : f32[64] @arena[256]
  %a1 = offload_done(%a0, %a) : f32[64] alias %a0[0] @host[0]
  %p0 = prefetch_start(%a1) {lane = "h2d"} : f32[64] @arena[512]
  %b0 = offload_start(%b) {lane = "d2h"} : f32[64] @host[SLOT]
  %p = prefetch_done(%p0, %a1) : f32[64] alias %p0[0] @arena[512]
  %b1 = offload_done(%b0, %b) : f32[64] alias %b0[0] @host[SLOT]
  %q0 = prefetch_start(%b1) {lane = "h2d"} : f32[64] @arena[768]
  %q = prefetch_done(%q0, %b1) : f32[64] alias %q0[0] @arena[768]
  %y = add(%p, %q) : f32[64]
  return %y
}
"""


def test_a_slot_that_is_read_from_while_another_copy_writes_it() -> None:
    check_copy_races(verified(parse(SLOT.replace("SLOT", "256")), "text"))
    message = (
        "op 5 offload_start, %b0: expected a wait for the copy of %a1 that op 4 prefetch_start began on lane h2d, "
        "which reads the same bytes of @host, got none before"
    )
    refuse(SLOT.replace("SLOT", "0"), message)
    refuse(SLOT.replace("SLOT", "192"), message)


def test_a_slot_is_free_after_the_wait() -> None:
    lines = SLOT.replace("SLOT", "0").splitlines()
    start, done = (
        lines.index(next(li for li in lines if "%b0 = " in li)),
        next(i for i, li in enumerate(lines) if "%p = " in li),
    )
    lines[start], lines[done] = lines[done], lines[start]
    module = verified(parse("\n".join(lines)), "text")
    x = np.arange(64, dtype=np.float32) - 32
    for times in ("start", "done", 1, 2, 3):
        np.testing.assert_array_equal(evaluate_in_arena(module, {"x": x}, copies=times)["0"], np.maximum(x, 0) - x)


def test_a_wait_covers_earlier_copies_of_its_lane_alone() -> None:
    """The done of the second copy comes first. On one lane the first is over by then."""
    text = """
    func @main(%x: f32[16] {{role = input}}) -> f32[16] {{
      %a = relu(%x) : f32[16] @arena[0]
      %b = neg(%x) : f32[16] @arena[64]
      %a0 = offload_start(%a) {{lane = "one"}} : f32[16] @host[0]
      %b0 = offload_start(%b) {{lane = "{lane}"}} : f32[16] @host[64]
      %b1 = offload_done(%b0, %b) : f32[16] alias %b0[0] @host[64]
      %c = exp(%x) : f32[16] @arena[0]
      %a1 = offload_done(%a0, %a) : f32[16] alias %a0[0] @host[0]
      %y = neg(%c) : f32[16]
      return %y
    }}
    """
    check_copy_races(parse(text.format(lane="one")))
    with pytest.raises(
        CheckError, match="op 5 exp, %c: .* copy of %a that op 2 offload_start began on lane one, which reads"
    ):
        check_copy_races(parse(text.format(lane="two")))


def test_a_value_that_was_written_over_before_its_wait() -> None:
    """The wait for the second copy covers the first, so nothing races; what the first brought is gone all the same."""
    text = """
    func @main(%x: f32[16] {role = input}, %v: f32[16] @host[0] {role = weight}, %w: f32[16] @host[64] {role = weight}) -> f32[16] {
      %p0 = prefetch_start(%v) {lane = "h2d"} : f32[16] @arena[0]
      %q0 = prefetch_start(%w) {lane = "h2d"} : f32[16] @arena[64]
      %q = prefetch_done(%q0, %w) : f32[16] alias %q0[0] @arena[64]
      %a = add(%x, %q) : f32[16] @arena[AT]
      %p = prefetch_done(%p0, %v) : f32[16] alias %p0[0] @arena[0]
      %u = reshape(%p) {shape = [4, 4]} : f32[4,4] alias %p0[0] @arena[0]
      %b = matmul(%u, %u) {transpose_a = false, transpose_b = false} : f32[4,4] @arena[192]
      %c = reshape(%b) {shape = [16]} : f32[16] alias %b[0] @arena[192]
      %y = add(%a, %c) : f32[16]
      return %y
    }
    """
    check_copy_races(verified(parse(text.replace("AT", "128")), "text"))
    refuse(text.replace("AT", "0"), "op 5 reshape, %p: expected its data at byte 0 of @arena, got other bytes")
    with pytest.raises(CheckError, match=r"op 4 prefetch_done, %p0: expected its data at byte 0 of its space, got %a"):
        check_plan(parse(text.replace("AT", "0")), partial=True)
    refuse(text.replace("AT", "32"), "op 5 reshape, %p: expected its data at byte 32 of @arena, got other bytes")


def test_a_workspace_over_a_running_copy() -> None:
    text = """
    func @main(%x: f32[16] {role = input}, %w: f32[16] @host[0] {role = weight}) -> f32[16] {
      %p0 = prefetch_start(%w) {lane = "h2d"} : f32[16] @arena[0]
      %a = exp(%x) workspace(%s: u8[64] @arena[64]) : f32[16] @arena[128]
      %p = prefetch_done(%p0, %w) : f32[16] alias %p0[0] @arena[0]
      %y = add(%a, %p) : f32[16]
      return %y
    }
    """
    check_copy_races(verified(parse(text), "text"))
    message = (
        "op 1 exp, %s: .* copy of %w that op 0 prefetch_start began on lane h2d, which writes the same bytes of @arena"
    )
    refuse(text.replace("@arena[64]", "@arena[32]"), message)


def test_destination_that_is_a_workspace_until_the_op_before() -> None:
    """The copy starts after the op that has the workspace; one line earlier it would run into it."""
    text = """
    func @main(%x: f32[16] {role = input}, %w: f32[16] @host[0] {role = weight}) -> f32[16] {
      %a = exp(%x) workspace(%s: u8[64] @arena[0]) : f32[16] @arena[64]
      %p0 = prefetch_start(%w) {lane = "h2d"} : f32[16] @arena[0]
      %p = prefetch_done(%p0, %w) : f32[16] alias %p0[0] @arena[0]
      %y = add(%a, %p) : f32[16]
      return %y
    }
    """
    check_copy_races(verified(parse(text), "text"))
    lines = text.splitlines()
    lines[2], lines[3] = lines[3], lines[2]
    refuse("\n".join(lines), "op 1 exp, %s: expected a wait")


def test_two_absences_of_one_value() -> None:
    text = """
    func @main(%x: f32[64] {role = input}) -> f32[64] {
      %a = exp(%x) : f32[64]
      %h0 = offload_start(%a) {lane = "d2h"} : f32[64]
      %h = offload_done(%h0, %a) : f32[64]
      %b = sin(%x) : f32[64]
      %p0 = prefetch_start(%h) {lane = "h2d"} : f32[64]
      %p = prefetch_done(%p0, %h) : f32[64]
      %c = add(%b, %p) : f32[64]
      %d = sin(%c) : f32[64]
      %q0 = prefetch_start(%h) {lane = "h2d"} : f32[64]
      %q = prefetch_done(%q0, %h) : f32[64]
      %y = add(%d, %q) : f32[64]
      return %y
    }
    """
    module = same_bits(text, {"x": np.linspace(-1, 1, 64, dtype=np.float32)})
    (life,) = lifetimes(module.main, "host")
    assert (life.lower, life.upper, space_bytes(module.main, "host")) == (1, 10, 256)


def test_views_are_made_anew() -> None:
    """A view of the value that is read late keeps its bytes; one of what comes back does not."""
    text = """
    func @main(%x: f32[64] {{role = input}}) -> f32[8,8] {{
      %a = exp(%x) : f32[64]
      %v = reshape(%a) {{shape = [8, 8]}} : f32[8,8]
      %u = neg(%v) : f32[8,8]
      %h0 = offload_start(%a) {{lane = "d2h"}} : f32[64]
      %h = offload_done(%h0, %a) : f32[64]
      %b = matmul(%u, %u) {{transpose_a = false, transpose_b = false}} : f32[8,8]
      %d = matmul(%b, %b) {{transpose_a = false, transpose_b = false}} : f32[8,8]
      %c = matmul(%d, %d) {{transpose_a = false, transpose_b = false}} : f32[8,8]
      %p0 = prefetch_start(%h) {{lane = "h2d"}} : f32[64]
      %p = prefetch_done(%p0, %h) : f32[64]
      %w = reshape(%p) {{shape = [8, 8]}} : f32[8,8]
      %y = matmul(%c, {read}) {{transpose_a = false, transpose_b = false}} : f32[8,8]
      return %y
    }}
    """
    x = {"x": np.linspace(-1, 1, 64, dtype=np.float32)}
    anew, kept = (same_bits(text.format(read=read), x) for read in ("%w", "%v"))
    assert space_bytes(anew.main, "arena") < space_bytes(kept.main, "arena")


def test_returned_value_and_input_as_sources() -> None:
    text = """
    func @main(%x: f32[64] {role = input}) -> (f32[64], f32[64]) {
      %i0 = offload_start(%x) {lane = "d2h"} : f32[64]
      %a = exp(%x) : f32[64]
      %i = offload_done(%i0, %x) : f32[64]
      %h0 = offload_start(%a) {lane = "d2h"} : f32[64]
      %h = offload_done(%h0, %a) : f32[64]
      %p0 = prefetch_start(%h) {lane = "h2d"} : f32[64]
      %q0 = prefetch_start(%i) {lane = "h2d"} : f32[64]
      %p = prefetch_done(%p0, %h) : f32[64]
      %q = prefetch_done(%q0, %i) : f32[64]
      %y = mul(%p, %q) : f32[64]
      return %a, %y
    }
    """
    module = same_bits(text, {"x": np.linspace(-1, 1, 64, dtype=np.float32)})
    _, result = module.main.returns
    assert result.alias is None and result.placement is None  # Not in the bytes that a copy writes.


def test_concat_is_copied_after_its_last_writer() -> None:
    text = """
    func @main(%x: f32[64] {role = input}) -> f32[128] {
      %a = exp(%x) : f32[64]
      %b = sin(%x) : f32[64]
      %c = concat(%a, %b) {axis = 0} : f32[128]
      %h0 = offload_start(%c) {lane = "d2h"} : f32[128]
      %h = offload_done(%h0, %c) : f32[128]
      %d = neg(%c) : f32[128]
      %p0 = prefetch_start(%h) {lane = "h2d"} : f32[128]
      %p = prefetch_done(%p0, %h) : f32[128]
      %y = add(%d, %p) : f32[128]
      return %y
    }
    """
    module = same_bits(text, {"x": np.linspace(-1, 1, 64, dtype=np.float32)})
    a, b, concat, start, *_ = module.main.ops
    assert a.result.root is b.result.root is concat.result  # Written straight into their slices.
    module.main.ops.remove(start)
    module.main.ops.insert(1, start)
    with pytest.raises(CheckError, match="op 1 offload_start, %c: expected a value that is defined before its use"):
        check_copy_races(module)


def test_slices_of_a_concat_are_copied_while_the_others_are_written() -> None:
    text = """
    func @main(%x: f32[64] {role = input}) -> f32[128] {
      %a = exp(%x) : f32[64] alias %c[0] @arena[0]
      %h0 = offload_start(%a) {lane = "d2h"} : f32[64] @host[0]
      %b = sin(%x) : f32[64] alias %c[256] @arena[256]
      %h = offload_done(%h0, %a) : f32[64] alias %h0[0] @host[0]
      %c = concat(%a, %b) {axis = 0} : f32[128] @arena[0]
      %y = neg(%c) : f32[128]
      return %y
    }
    """
    check_copy_races(verified(parse(text), "text"))
    refuse(text.replace("alias %c[256] @arena[256]", "@arena[128]"), "op 2 sin, %b: expected a wait for the copy of %a")


@pytest.mark.parametrize("dtype", ["bool", "u8", "i8", "f16", "bf16", "i64", "f64"])
@pytest.mark.parametrize("extent", [1, 3, 67])
def test_bytes_are_exact(dtype: str, extent: int) -> None:
    text = f"""
    func @main(%x: {dtype}[{extent}] {{role = input}}, %w: {dtype}[{extent}] {{role = weight}}) -> ({dtype}[{extent}], {dtype}[{extent}]) {{
      %h0 = offload_start(%x) {{lane = "d2h"}} : {dtype}[{extent}]
      %h = offload_done(%h0, %x) : {dtype}[{extent}]
      %p0 = prefetch_start(%h) {{lane = "h2d"}} : {dtype}[{extent}]
      %q0 = prefetch_start(%w) {{lane = "h2d"}} : {dtype}[{extent}]
      %p = prefetch_done(%p0, %h) : {dtype}[{extent}]
      %q = prefetch_done(%q0, %w) : {dtype}[{extent}]
      %y = copy(%p) : {dtype}[{extent}]
      %z = copy(%q) : {dtype}[{extent}]
      return %y, %z
    }}
    """
    type = parse(text).main.params[0].type.dtype.numpy
    bits = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, extent * type.itemsize, np.uint8)
    if dtype in ("f16", "f64"):
        bits[:2], bits[-2:] = (1, 0x7C), (0xF0, 0xFF)  # NaNs with payloads.
    data = bits.view(type)
    module = same_bits(text, {"x": data}, {"w": data})
    found = evaluate_in_arena(module, {"x": data}, copies=3)
    assert found["0"].tobytes() == found["1"].tobytes() == bits.tobytes()


def test_tensors_of_more_than_32_bits_of_bytes() -> None:
    size = 2**32 + 1
    text = f"""
    func @main(%x: u8[{size}] {{role = input}}) -> u8[{size}] {{
      %a = copy(%x) : u8[{size}]
      %h0 = offload_start(%a) {{lane = "d2h"}} : u8[{size}]
      %h = offload_done(%h0, %a) : u8[{size}]
      %b = copy(%x) : u8[{size}]
      %g0 = offload_start(%b) {{lane = "d2h"}} : u8[{size}]
      %p0 = prefetch_start(%h) {{lane = "h2d"}} : u8[{size}]
      %p = prefetch_done(%p0, %h) : u8[{size}]
      %g = offload_done(%g0, %b) : u8[{size}]
      %y = copy(%p) : u8[{size}]
      return %y
    }}
    """
    module = planned(text)
    assert space_bytes(module.main, "host") == 2 * (size + 63)
    places = {op.result.placement.offset for op in module.main.ops if op.name == "offload_start"}  # type: ignore[union-attr]
    assert places == {0, size + 63}


def test_functions_without_copies_have_no_host_space() -> None:
    module = planned("func @main(%x: f32[4] {role = input}) -> f32[4] { %y = neg(%x) : f32[4] return %y }")
    assert [space.name for space in module.target.spaces] == ["arena", "weights", "io"]

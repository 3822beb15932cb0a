# SPDX-License-Identifier: Apache-2.0
"""delay-updates: nothing runs before what it reads."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.evaluate import evaluate
from memc.ir.op_queries import assigned_state
from memc.ir.text.parser import parse
from memc.ir.verify.structure import verify
from memc.passes.launches.delay_updates import assigns_alone, delay_updates
from memc.passes.launches.update_ops import update_ops

READ_BETWEEN = """
func @main(%x: f32[64] {role = input}, %r: f32[] {role = input}, %s0: f32[64] {role = state}, %s1: f32[64] {role = state},
           %s2: f32[64] {role = state}) -> (f32[64], f32[64], f32[64], f32[64]) {
  %v1 = exp(%x) : f32[64]
  %v2 = assign(%s1, %x) : f32[64]
  %v3 = add(%v1, %v1) : f32[64]
  %v4 = mul(%v2, %r) : f32[64]
  %v5 = assign(%s0, %v4) : f32[64]
  %v6 = mul(%x, %r) : f32[64]
  %v7 = assign(%s2, %v6) : f32[64]
  %v8 = add(%x, %x) : f32[64]
  %y = sinh(%v8) : f32[64]
  return %v2, %v5, %v7, %y
}
"""
"""The product %v4 reads the new content of %s1."""


def test_an_assign_does_not_wait_where_its_reader_does_not() -> None:
    module, plain = parse(READ_BETWEEN), parse(READ_BETWEEN)
    alone = assigns_alone(module.main, update_ops(module.main))
    assert [state[1].name for op in module.main.ops if op in alone and (state := assigned_state(op))] == ["s0", "s2"]
    delay_updates(module.main)
    verify(module)
    numbers = np.random.default_rng(0)
    inputs = {p.name: numbers.normal(size=p.type.shape).astype(np.float32) for p in module.main.params}
    for found, expected in zip(evaluate(module, dict(inputs)).values(), evaluate(plain, dict(inputs)).values()):
        np.testing.assert_array_equal(found, expected)


BESIDE_COPIES = """
func @main(%x: f32[64] {role = input}, %r: f32[] {role = input}, %s0: f32[64] {role = state}, %s1: f32[64] {role = state},
           %s2: f32[64] {role = state}) -> (f32[64], f32[64], f32[64], f32[64]) {
  %a = exp(%x) : f32[64]
  %h0 = offload_start(%a) {lane = "out"} : f32[64]
  %h = offload_done(%h0, %a) : f32[64]
  %g0 = mul(%x, %r) : f32[64]
  %u0 = assign(%s0, %g0) : f32[64]
  %p0 = prefetch_start(%h) {lane = "in"} : f32[64]
  %p = prefetch_done(%p0, %h) : f32[64]
  %q0 = prefetch_start(%s2) {lane = "in"} : f32[64]
  %q = prefetch_done(%q0, %s2) : f32[64]
  %g1 = mul(%p, %r) : f32[64]
  %u1 = assign(%s1, %g1) : f32[64]
  %u2 = mul(%q, %r) : f32[64]
  %w0 = offload_start(%u2) {lane = "out"} : f32[64] alias %s2[0]
  %w = offload_done(%w0, %u2) : f32[64] alias %s2[0]
  %y = sinh(%p) : f32[64]
  return %u0, %u1, %w, %y
}
"""
"""Two updates of states of the device, and one that a copy writes back."""


def test_updates_wait_beside_copies_but_not_for_those_that_are_written_back() -> None:
    module, plain = parse(BESIDE_COPIES), parse(BESIDE_COPIES)
    verify(module)
    delay_updates(module.main)
    verify(module)
    names = [op.results[0].name for op in module.main.ops]
    assert names.index("u0") > names.index("p") and names[-1] == "u1"
    assert names.index("u2") < names.index("w0") < names.index("y")
    numbers = np.random.default_rng(0)
    inputs = {p.name: numbers.normal(size=p.type.shape).astype(np.float32) for p in module.main.params}
    for found, expected in zip(evaluate(module, dict(inputs)).values(), evaluate(plain, dict(inputs)).values()):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("arenas", "waits"), [([256, 256], True), ([256, 320], False)])
def test_nothing_waits_where_no_addresses_are_found_for_it(
    monkeypatch: pytest.MonkeyPatch, arenas: list[int], waits: bool
) -> None:
    """`arenas`: of the function before, and of all other orders."""
    module = parse(READ_BETWEEN)
    before = list(module.main.ops)
    found = iter(arenas)
    monkeypatch.setattr("memc.passes.launches.delay_updates.planned_arena", lambda *_: next(found, arenas[-1]))
    delay_updates(module.main, keep_arena=True)
    verify(module)
    assert (module.main.ops != before) == waits


OLD_CONTENT = """
func @main(%x: f32[64] {role = input}, %r: f32[] {role = input}, %s0: f32[64] {role = state}, %s1: f32[64] {role = state},
           %s2: f32[64] {role = state}) -> (f32[64], f32[64], f32[64], f32[64]) {
  %g = exp(%x) : f32[64]
  %u0 = assign(%s0, %s1) : f32[64]
  %u1 = assign(%s1, %g) : f32[64]
  %h = sinh(%x) : f32[64]
  %v = mul(%u1, %r) : f32[64]
  %u2 = assign(%s2, %v) : f32[64]
  %y = sinh(%h) : f32[64]
  return %u0, %u1, %u2, %y
}
"""
"""%u0 reads the old content of %s1, whose assign does not wait without its reader %v."""


def test_an_assign_does_not_wait_for_content_that_is_overwritten_meanwhile() -> None:
    module = parse(OLD_CONTENT)
    alone = assigns_alone(module.main, update_ops(module.main))
    assert [op.results[0].name for op in module.main.ops if op in alone] == ["u2"]

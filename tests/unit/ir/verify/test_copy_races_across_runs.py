# SPDX-License-Identifier: Apache-2.0
"""The detector of races between copies and other ops: what one run leaves for the next."""

from __future__ import annotations

import numpy as np
import pytest

from memc.frontend.memir import verified
from memc.ir.errors import CheckError
from memc.ir.evaluate import evaluate_in_arena
from memc.ir.function_footprint import footprint_of
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan


def test_weight_in_host_that_a_later_copy_overwrites() -> None:
    """Right in the first run: only the second finds other bytes."""
    text = """
    func @main(%x: f32[16] {role = input}, %w: f32[16] @host[0] {role = weight}) -> f32[16] {
      %p0 = prefetch_start(%w) {lane = "h2d"} : f32[16] @arena[0]
      %p = prefetch_done(%p0, %w) : f32[16] alias %p0[0] @arena[0]
      %a = add(%x, %p) : f32[16] @arena[64]
      %h0 = offload_start(%a) {lane = "d2h"} : f32[16] @host[SLOT]
      %h = offload_done(%h0, %a) : f32[16] alias %h0[0] @host[SLOT]
      %y = neg(%a) : f32[16]
      return %y
    }
    """
    check_copy_races(verified(parse(text.replace("SLOT", "64")), "text"))
    message = "return, %w: expected its data at byte 0 of @host, got other bytes for the next run"
    with pytest.raises(CheckError, match=message):
        check_copy_races(parse(text.replace("SLOT", "0")))
    with pytest.raises(CheckError, match="return, %w: expected its data at byte 0"):
        check_plan(parse(text.replace("SLOT", "0")), partial=True)


STATE = """
func @main(%g: f32[64] {role = input}, %m: f32[64] @host[0] {role = state}) -> f32[64] {
  %0 = prefetch_start(%m) {lane = "h2d"} : f32[64] @arena[0]
  %1 = prefetch_done(%0, %m) : f32[64] alias %0[0] @arena[0]
  %2 = add(%1, %g) plan {in_place = 0} : f32[64] alias %0[0] @arena[0]
  %3 = offload_start(%2) {lane = "d2h"} : f32[64] alias %m[0] @host[0]
  %4 = offload_done(%3, %2) : f32[64] alias %m[0] @host[0]
  return %4
}
"""


def test_the_last_op_copies_a_state_back() -> None:
    module = verified(parse(STATE), "text")
    module.weights["m"] = np.ones(64, np.float32)
    found = evaluate_in_arena(module, {"g": np.full(64, 2, np.float32)}, copies="done")
    np.testing.assert_array_equal(found["0"], 3)
    assert footprint_of(module.main, module.target)["host"] == 256
    unfinished = parse(STATE)
    unfinished.main.ops.pop()
    unfinished.main.returns = [unfinished.main.ops[-1].result]
    with pytest.raises(
        CheckError, match="op 3 offload_start, %3: expected a wait for the copy before the function returns"
    ):
        check_copy_races(unfinished)


def test_a_state_that_comes_back_elsewhere() -> None:
    """Right in the first run: the next one reads the state where only half of its new content lies."""
    text = """
    func @main(%g: f32[64] {role = input}, %m: f32[64] @host[0] {role = state}) -> f32[64] {
      %0 = prefetch_start(%m) {lane = "h2d"} : f32[64] @arena[0]
      %1 = prefetch_done(%0, %m) : f32[64] alias %0[0] @arena[0]
      %2 = add(%1, %g) plan {in_place = 0} : f32[64] alias %0[0] @arena[0]
      %3 = offload_start(%2) {lane = "d2h"} : f32[64] alias %m[AT] @host[AT]
      %4 = offload_done(%3, %2) : f32[64] alias %m[AT] @host[AT]
      return %4
    }
    """
    check_copy_races(parse(text.replace("AT", "0")))
    message = "return, %m: expected its data at byte 0 of @host, got other bytes for the next run"
    with pytest.raises(CheckError, match=message):
        check_copy_races(parse(text.replace("AT", "128")))

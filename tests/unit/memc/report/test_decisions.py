# SPDX-License-Identifier: Apache-2.0
"""What the report says became of values, on functions whose answer is seen at once."""

from __future__ import annotations

from memc.ir.text.parser import parse
from memc.report.decisions import Decision, decisions_of
from memc.report.origins import lives_of, origins_of
from memc.report.timeline import timeline
from memc.solvers.offload import Lane, Lanes

SECOND = 10**12

QUICK = Lanes(Lane(0, SECOND), Lane(0, SECOND))
"""1 MiB takes a second."""

PLANNED = """func @main(%x: f32[262144] {role = input}, %w: f32[262144] {role = weight}) -> f32[262144] {
  %a = tanh(%x) : f32[262144]
  %s = slice(%a) {axes = [0], starts = [0], stops = [4], steps = [1]} : f32[4]
  %v = reshape(%a) {shape = [512, 512]} : f32[512,512]
  %b = exp(%v) : f32[512,512]
  %h0 = offload_start(%b) {lane = "d2h"} : f32[512,512]
  %c = exp(%b) : f32[512,512]
  %h = offload_done(%h0, %b) : f32[512,512]
  %d = add(%c, %c) : f32[512,512]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[512,512]
  %e = tanh(%d) : f32[512,512]
  %p = prefetch_done(%p0, %h) : f32[512,512]
  %c2 = exp(%p) plan {recompute = [1]} : f32[512,512]
  %f = mul(%e, %c2) : f32[512,512]
  %a2 = tanh(%x) plan {recompute = [1]} : f32[262144]
  %v2 = reshape(%a2) {shape = [512, 512]} : f32[512,512]
  %g = mul(%f, %v2) : f32[512,512]
  %y = reshape(%g) {shape = [262144]} : f32[262144]
  %z = add(%y, %w) : f32[262144]
  return %z
}
"""


def decided(text: str, lanes: Lanes = QUICK, cost: int = SECOND, **immovable: str) -> dict[str, Decision]:
    """By value; every op takes `cost` picoseconds, and 1 MiB is the least copy."""
    function = parse(text).main
    found = decisions_of(
        function, timeline(function, lambda op: cost, lanes), lambda op: cost, lanes, immovable, 2**20, 64
    )
    assert [each.bytes for each in found] == sorted((each.bytes for each in found), reverse=True)
    return {each.value: each for each in found}


def test_copies_recomputed_results_and_views_are_of_the_programs_values() -> None:
    function = parse(PLANNED).main
    origins = {value.name: origin.name for value, origin in origins_of(function).items()}
    assert {name: of for name, of in origins.items() if name != of} == {
        **{"v": "a", "a2": "a", "v2": "a"},
        **{"h0": "b", "h": "b", "p0": "b", "p": "b", "c2": "c", "y": "g"},
    }
    lives = {life.value.name: life for life in lives_of(function)}
    assert set(lives) == {"x", "w", "a", "s", "b", "c", "d", "e", "f", "g", "z"}
    assert (lives["b"].uses, lives["b"].leaves, lives["b"].comes, lives["b"].runs) == ([3, 5, 10, 11], [4], [8], [])
    assert lives["a"].runs == [13] and lives["c"].runs == [11] and lives["c"].uses == [5, 7, 11, 12]


def test_ops_that_differ_are_not_one_op_run_again() -> None:
    text = PLANNED.replace("%c2 = exp(%p) plan", "%c2 = tanh(%p) plan")
    origins = {value.name: origin.name for value, origin in origins_of(parse(text).main).items()}
    assert origins["c2"] == "c2"


def test_decisions_and_their_reasons() -> None:
    found = decided(PLANNED, b="unused")
    assert {name: each.decision for name, each in found.items()} == {
        **{"x": "none", "w": "none", "z": "none", "g": "kept", "f": "kept", "e": "kept", "d": "kept"},
        **{"a": "recomputed", "b": "offloaded", "c": "recomputed"},
    }
    assert found["x"].reason == "is an input, which the caller holds" and not found["x"].is_result
    assert found["w"].reason == "is a weight, which stays on the device"
    # From its last reader, %c, to the start of the copy back.
    assert found["b"].reason == "not needed for 1 s; copies out and once back take 2 s"
    assert found["c"].reason == (
        "running exp again once takes 1 s; the time without it is short: 1 s, a copy out and back takes 2 s"
    )
    assert found["z"].reason == "is a result of the function"
    assert found["d"].reason == "is used by ops one after another"


CHAIN = """func @main(%x: f32[262144] {role = input}) -> f32[262144] {
  %a = tanh(%x) : f32[262144]
  %b = exp(%a) : f32[262144]
  %h0 = offload_start(%b) {lane = "d2h"} : f32[262144]
  %c = exp(%b) : f32[262144]
  %h = offload_done(%h0, %b) : f32[262144]
  %d = exp(%c) : f32[262144]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[262144]
  %e = exp(%d) : f32[262144]
  %p = prefetch_done(%p0, %h) : f32[262144]
  %f = add(%e, %p) : f32[262144]
  %g = add(%f, %a) : f32[262144]
  return %g
}
"""


def test_why_values_are_kept() -> None:
    assert decided(CHAIN)["a"].reason == "the budget is kept without moving it"
    full = decided(CHAIN, Lanes(Lane(0, 4 * SECOND), Lane(0, SECOND // 4)))["a"].reason
    assert full == "the link is full: the lane out is busy 57 % of the 7 s without it"


def test_room_while_a_value_is_not_used() -> None:
    text = """func @main(%x: f32[262144] {role = input}) -> f32[262144] {
  %a = tanh(%x) : f32[262144]
  %b = exp(%a) : f32[262144]
  %c = exp(%b) : f32[262144]
  %d = add(%c, %a) : f32[262144]
  %e = exp(%d) : f32[262144]
  %f = concat(%d, %e) {axis = 0} : f32[524288]
  %s = slice(%f) {axes = [0], starts = [0], stops = [262144], steps = [1]} : f32[262144]
  %t = exp(%s) : f32[262144]
  return %t
}
"""
    assert decided(text)["a"].reason == ("not needed at the peak: while it is not used, at most 75 % of the arena is")


def test_values_that_may_not_move() -> None:
    found = decided(CHAIN, a="is below the least copy of 2.00 MiB")
    assert (found["a"].decision, found["a"].reason) == ("none", "is below the least copy of 2.00 MiB")
    assert found["b"].decision == "offloaded"


STREAMED = """func @main(%x: f32[262144] {role = input}, %w: f32[262144] {role = weight}) -> f32[262144] {
  %p0 = prefetch_start(%w) {lane = "h2d"} : f32[262144]
  %a = tanh(%x) : f32[262144]
  %p = prefetch_done(%p0, %w) : f32[262144]
  %y = add(%a, %p) : f32[262144]
  return %y
}
"""


def test_weights_on_the_host() -> None:
    found = decided(STREAMED)["w"]
    assert found.decision == "streamed"
    assert found.reason == "lies in the space host; copied in once, which takes 1 s"


def test_workspaces_are_listed() -> None:
    text = """func @main(%x: f32[262144] {role = input}) -> f32[262144] {
  %a = tanh(%x) workspace(%s: u8[4194304]) : f32[262144]
  return %a
}
"""
    found = decided(text)
    assert found["s"].reason == "is a workspace, which lives during one op" and found["s"].bytes == 2**22

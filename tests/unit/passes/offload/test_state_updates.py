# SPDX-License-Identifier: Apache-2.0
"""Which states may lie on the host, and what updates them."""

from __future__ import annotations

import pytest

from memc.ir.core import Function
from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.errors import UsageError
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager
from memc.passes.offload.host_states import How, place_states
from memc.passes.offload.lane_times import LaneTimes
from memc.passes.offload.link_rates import LINKS
from memc.passes.offload.state_updates import StateUpdates

HEAD = """func @main(%x: f32[64] {role = input}, %rate: f32[] {role = input}, %m: TYPE {role = state}, %w: f32[64] {role = state}) -> (f32[64] {name = "y"}, TYPE {name = "m"}, f32[64] {name = "w"}) {
"""


def function(body: str, returns: str = "%y, %m1, %w1", type: str = "f32[64]") -> Function:
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return parse(f"{HEAD.replace('TYPE', type)}{lines}\n  return {returns}\n}}\n").main


PLAIN = """
%y = exp(%x) : f32[64]
%z = tanh(%y) : f32[64]
%scaled = neg(%rate) : f32[]
%sum = add(%m, %y) : f32[64]
%m1 = assign(%m, %sum) : f32[64]
%step = mul(%m1, %scaled) : f32[64]
%moved = add(%w, %step) : f32[64]
%w1 = assign(%w, %moved) : f32[64]
"""


def test_an_update_is_what_assigns_states_together() -> None:
    made = function(PLAIN)
    found = StateUpdates.of(made, 1)
    (update,) = found.updates
    assert [op.result.name for op in update.ops] == ["sum", "m1", "step", "moved", "w1"]
    assert [state.name for state in update.states] == ["m", "w"]
    assert {op.result.name for op in update.behind} == {"y", "scaled"}
    assert {op.result.name for op in found.early} == {"scaled"}
    assert update.bytes == 512 and not found.casts and not found.reasons


@pytest.mark.parametrize(
    ("body", "returns", "type", "why"),
    [
        (PLAIN, "%y, %m1, %w1", "f32[64]", "is below the least copy of 1.00 KiB"),
        (PLAIN.replace("tanh(%y)", "add(%y, %m)"), "%y, %m1, %w1", "f32[64]", "is read by add, too"),
        (
            PLAIN.replace(
                "%z = tanh(%y) : f32[64]", "%v = reshape(%m) {shape = [8,8]} : f32[8,8]\n%z = exp(%v) : f32[8,8]"
            ),
            "%y, %m1, %w1",
            "f32[64]",
            "is read through a view",
        ),
        (PLAIN.replace("mul(%m1, %scaled)", "mul(%y, %scaled)"), "%y, %m1, %w1", "i64[]", "is a scalar"),
    ],
)
def test_why_a_state_stays(body: str, returns: str, type: str, why: str) -> None:
    if type == "i64[]":
        body = body.replace("%sum = add(%m, %y) : f32[64]", "%sum = neg(%m) : i64[]")
        body = body.replace("assign(%m, %sum) : f32[64]", "assign(%m, %sum) : i64[]")
    least = 1024 if why.startswith("is below") else 1
    assert StateUpdates.of(function(body, returns, type), least).reasons["m"] == why


def test_casts_to_fewer_bits_may_read_a_state() -> None:
    body = PLAIN.replace("%z = tanh(%y) : f32[64]", "%z = cast(%m) {to = f16} : f16[64]")
    found = StateUpdates.of(function(body), 1)
    assert [(state.name, [op.result.name for op in ops]) for state, ops in found.casts.items()] == [("m", ["z"])]
    (update,) = found.updates
    assert "z" in {op.result.name for op in update.behind}  # It reads the old content.


def test_states_of_a_function_with_aliases_stay() -> None:
    module = parse(str(parse(HEAD.replace("TYPE", "f32[64]") + PLAIN + "  return %y, %m1, %w1\n}\n")))
    PassManager.parse("in-place").run(module)
    with pytest.raises(UsageError, match="^host-states: expected a function without aliases and placements"):
        PassManager.parse("host-states").run(module)


def test_a_limit_below_what_an_update_needs_leaves_the_function_as_it_was() -> None:
    made = function(PLAIN)
    before = list(made.ops)
    found = StateUpdates.of(made, 1)
    link = LINKS["h200"]
    how = How(CostModel(DEVICES["cuda"]), link.name, link.origin, link.lanes(), 1, 64)
    assert place_states(made, found, found.updates, 256, how) is None
    assert made.ops == before and place_states(made, found, (), None, how) is None
    once = LaneTimes.of(made.ops, how.costs.cost, how.lanes)
    placed = place_states(made, found, found.updates, None, how)
    assert placed is not None and placed.states == ("m", "w") and placed.bytes_in == placed.bytes_out == 512
    times = LaneTimes.of(made.ops, how.costs.cost, how.lanes)
    assert placed.once == once.makespan and placed.added == times.makespan - once.makespan > 0
    assert len(times.busy["in"]) == len(times.busy["out"]) == 2

# SPDX-License-Identifier: Apache-2.0
"""What storages hold, and the trace's counters of it."""

from __future__ import annotations

from memc.ir.text.parser import parse
from memc.report.roles import storage_roles
from memc.report.trace import plan_trace

STEP = """\
func @main(%x: f32[64] {role = input}, %w: f32[64] {role = state}) -> (f32[1] {name = "loss"}, f32[64] {name = "w"}) {
  %a = mul(%x, %w) : f32[64]
  %l = reduce_sum(%a) {axes = [0], keepdims = true} : f32[1]
  %r = mul(%x, %w) plan {recompute = [1]} : f32[64]
  %g = mul(%r, %x) : f32[64]
  %n = sub(%w, %g) : f32[64]
  return %l, %n
}
"""


def test_roles_of_a_training_step() -> None:
    function = parse(STEP).main
    found = {value.name: role for value, role in storage_roles(function).items()}
    assert found == {
        "w": "states",
        "a": "activations",
        "l": "activations",
        "r": "recomputed",
        "g": "gradients and updates",
        "n": "gradients and updates",
    }


def test_roles_of_a_model_that_does_not_train() -> None:
    text = STEP.replace("state}", "weight}")
    assert set(storage_roles(parse(text).main).values()) == {"activations", "recomputed"}


def test_counters_by_role() -> None:
    events = plan_trace(parse(STEP), "")["traceEvents"]
    counted = [event["args"] for event in events if event["name"] == "arena bytes by role"]
    acts, grads, again = "activations", "gradients and updates", "recomputed"
    assert counted == [
        {acts: 256, grads: 0, again: 0},
        {acts: 0, grads: 0, again: 256},
        {acts: 0, grads: 256, again: 256},
        {acts: 0, grads: 256, again: 0},
    ]

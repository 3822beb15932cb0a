# SPDX-License-Identifier: Apache-2.0
"""Profiles from given kernel times: medians, shares, joint kernels, and costs for `rematerialize`."""

from __future__ import annotations

import pytest

from memc.ir.core import Function
from memc.ir.cost_model import DEVICES, signature
from memc.ir.text.parser import parse
from memc.measure.op_times import Profile, make_profile
from memc.runtime.execute.profile import Call

TEXT = """\
func @main(%x: f32[1000] {role = input}, %z: f32[500] {role = input}) -> (f32[1000], f32[500], f32[1000]) {
  %a = exp(%x) : f32[1000]
  %b = neg(%x) plan {joint = 0} : f32[1000]
  %c = neg(%z) plan {joint = 0} : f32[500]
  %d = exp(%b) : f32[1000]
  return %a, %c, %d
}
"""


def run(*seconds: float) -> list[Call]:
    """Three calls, one after another: of %a, of %b and %c together, of %d."""
    calls, begin = [], 0.0
    for op, spent in zip((0, 1, 3), seconds):
        calls.append(Call(op, f"kernel_{op}", begin, spent))
        begin += spent
    return calls


@pytest.fixture
def function() -> Function:
    return parse(TEXT).main


def profile(function: Function) -> Profile:
    return make_profile(function, [run(4, 30, 6), run(2, 90, 10), run(3, 60, 8)], "llvm", DEVICES["llvm"])


def test_medians_and_shares(function: Function) -> None:
    found = profile(function)
    assert [op.result for op in found.ops] == ["a", "b", "c", "d"]
    assert [op.seconds for op in found.ops] == pytest.approx([3, 40, 20, 8])
    assert sum(op.share for op in found.ops) == pytest.approx(1) and found.seconds == pytest.approx(71)
    assert [op.result for op in found.slowest(2)] == ["b", "c"]
    assert found.run_seconds == 71 and [call.seconds for call in found.calls] == [3, 60, 8]


def test_a_joint_kernel_is_shared_by_work(function: Function) -> None:
    """%b moves twice the bytes of %c."""
    b, c = profile(function).ops[1:3]
    assert (b.bytes, c.bytes) == (8000, 4000) and b.kernels == c.kernels == ("kernel_1",)
    assert b.roofline == pytest.approx(c.roofline)


def test_seconds_by_signature_are_means(function: Function) -> None:
    found = profile(function).seconds_by_signature()
    assert found == pytest.approx(
        {
            signature(function.ops[0]): (3 + 8) / 2,  # %a and %d are of one kind.
            signature(function.ops[1]): 40,
            signature(function.ops[2]): 20,
        }
    )


def test_totals(function: Function) -> None:
    found = profile(function)
    assert found.bytes == 8000 + 8000 + 4000 + 8000
    assert found.flops == sum(op.flops for op in found.ops) > 0
    assert found.least_seconds == pytest.approx(found.bytes / DEVICES["llvm"].bandwidth)

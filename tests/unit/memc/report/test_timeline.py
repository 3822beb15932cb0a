# SPDX-License-Identifier: Apache-2.0
"""Times of ops and copies, against timelines worked out by hand."""

from __future__ import annotations

from memc.ir.text.parser import parse
from memc.report.timeline import Intervals, Timeline, timeline
from memc.solvers.offload import Lane, Lanes

LANES = Lanes(Lane(10, 150, 1024), Lane(20, 80, 512))
"""1 MiB takes 160 out, and 100 back, which is half as quick beside a copy out."""

HEAD = "func @main(%x: f32[262144] {role = input}) -> f32[262144] {\n  %a = tanh(%x) : f32[262144]\n"


def of(body: str) -> Timeline:
    """The timeline of a function whose ops all take 100."""
    lines = "".join(f"  {line} : f32[262144]\n" for line in body.strip().splitlines())
    return timeline(parse(f"{HEAD}{lines}  return %y\n}}\n").main, lambda op: 100, LANES)


def test_a_copy_that_ops_hide() -> None:
    found = of(
        """%h0 = offload_start(%a) {lane = "d2h"}
%b = exp(%a)
%c = exp(%b)
%h = offload_done(%h0, %a)
%p0 = prefetch_start(%h) {lane = "h2d"}
%d = exp(%c)
%p = prefetch_done(%p0, %h)
%y = add(%d, %p)"""
    )
    assert found.makespan == found.computing == 500 and found.waiting == 0
    assert [(c.way, c.begin, c.end, c.value.name, c.bytes) for c in found.copies] == [
        ("out", 100, 260, "a", 2**20),
        ("in", 300, 400, "a", 2**20),
    ]
    assert found.starts == [0, 100, 100, 200, 300, 300, 300, 400, 400]
    assert found.stalls(5) == []


def test_ops_wait_for_copies() -> None:
    found = of(
        """%h0 = offload_start(%a) {lane = "d2h"}
%b = exp(%a)
%h = offload_done(%h0, %a)
%p0 = prefetch_start(%h) {lane = "h2d"}
%p = prefetch_done(%p0, %h)
%y = add(%b, %p)"""
    )
    # 100 of %a, of %b; out until 260; back until 360; then %y.
    assert found.makespan == 460 and found.waiting == 160
    (stall,) = found.stalls(5)
    assert (stall.op.result.name, stall.waited, stall.begin) == ("y", 160, 360)
    assert stall.waits_for is found.copies[1] and [copy.waited for copy in found.copies] == [60, 100]
    idle = found.idle()
    assert [copy.duration - idle.within(copy.begin, copy.end) for copy in found.copies] == [100, 0]


def test_lanes_share_the_link() -> None:
    found = of(
        """%h0 = offload_start(%a) {lane = "d2h"}
%b = exp(%a)
%c = exp(%b)
%h = offload_done(%h0, %a)
%p0 = prefetch_start(%h) {lane = "h2d"}
%g0 = offload_start(%c) {lane = "d2h"}
%d = exp(%b)
%p = prefetch_done(%p0, %h)
%g = offload_done(%g0, %c)
%y = add(%d, %p)"""
    )
    # Both from 300 on: the copy out, 160, has its whole speed, and the one back half of it: 80 until 460, then 20 more.
    assert [(copy.begin, copy.end) for copy in found.copies] == [(100, 260), (300, 480), (300, 460)]
    assert found.makespan == 580 and found.busy("out").within(0, 580) == 320 and found.busy("in").within(350, 400) == 50


def test_copies_of_a_lane_take_turns() -> None:
    found = of(
        """%b = exp(%a)
%h0 = offload_start(%a) {lane = "d2h"}
%g0 = offload_start(%b) {lane = "d2h"}
%c = exp(%x)
%h = offload_done(%h0, %a)
%g = offload_done(%g0, %b)
%y = exp(%c)"""
    )
    assert [(copy.begin, copy.end, copy.waited) for copy in found.copies] == [(200, 360, 60), (360, 520, 160)]
    assert found.stalls(5)[0].waits_for is found.copies[1] and found.makespan == 620


def test_intervals() -> None:
    intervals = Intervals.of([(10, 20), (20, 30), (50, 60)])
    cases = {(0, 100): 30, (15, 55): 20, (30, 50): 0, (0, 10): 0, (25, 26): 1, (60, 70): 0, (55, 52): 0}
    assert {case: intervals.within(*case) for case in cases} == cases
    assert Intervals.of([]).within(0, 10) == 0

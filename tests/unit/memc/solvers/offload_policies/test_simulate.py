# SPDX-License-Identifier: Apache-2.0
"""What each policy copies, when ops wait for it, and what comes back when, on a chain that can be followed by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memc.solvers.lane_clock import LaneClock
from memc.solvers.offload import Lane, Lanes, OffloadProblem, Step, measure_schedule
from memc.solvers.offload_policies import policy as policies
from memc.solvers.offload_policies.choose import PolicyName, schedules
from memc.solvers.offload_policies.layers import Kind, Layer, LayeredProblem, pass_boundary
from memc.solvers.offload_policies.policy import POLICIES, Policy
from memc.solvers.offload_policies.simulate import simulate
from memc.solvers.recompute import RecomputeProblem

MIB = 1 << 20
NEVER = 1 << 40
"""A limit that nothing reaches."""


def chain(kinds: list[Kind], cost: int = 100, copy: int = 100, lanes: Lanes | None = None) -> LayeredProblem:
    """Layers one after another, each of one op that reads the value before it, and for each a layer of the backward pass that reads
    the gradient before it and what the layer read. Value i is what layer i makes; all are of 1 MiB."""
    count = len(kinds)
    reads: list[list[int]] = [[] if i == 0 else [i - 1] for i in range(count)]
    for i in reversed(range(count)):
        reads.append([len(reads) - 1, *([i - 1] if 0 < i < len(reads) else [])])
    ops = len(reads)
    none: list[list[int]] = [[] for _ in range(ops)]
    problem = RecomputeProblem(
        sizes=[MIB] * ops,
        costs=[cost] * ops,
        once=[False] * ops,
        scratch=[0] * ops,
        reads=[sorted(set(values)) for values in reads],
        makes=[[op] for op in range(ops)],
        over=none,
        parts=none,
        until=none,
    )
    layers = [Layer(kind, (i,)) for i, kind in enumerate((*kinds, *reversed(kinds)))]
    lane = Lane(0, copy)
    moves = OffloadProblem(problem, [True] * ops, lanes or Lanes(lane, lane))
    return LayeredProblem(moves, layers, count)


def told(problem: LayeredProblem, policy: Policy, limit: int = NEVER) -> str:
    """A schedule in words: ops by number, values that begin and end to leave (`-`, `_`) and to come (`+`, `=`)."""
    signs = {
        Step.RUN: "",
        Step.OUT_START: "-",
        Step.OUT_DONE: "_",
        Step.DROP: "~",
        Step.IN_START: "+",
        Step.IN_DONE: "=",
    }
    return " ".join(f"{signs[step]}{number}" for step, number in simulate(problem, policy, limit).items)


CONV, POOL, OTHER, DENSE = Kind.CONV, Kind.POOL, Kind.OTHER, Kind.DENSE

CONVS = [CONV] * 4
"""Values 0, 1 and 2 are read by the next layer, and by that layer's op of the backward pass, 6, 5 and 4."""
MIXED = [CONV, POOL, OTHER, CONV, OTHER]
"""Values 0 to 3 are read by the next layer, and by ops 8, 7, 6 and 5."""


def test_boundary_is_where_most_waits() -> None:
    problem = chain(MIXED)
    assert pass_boundary(problem.problem) == problem.boundary == 5
    assert [problem.is_saved(v) for v in range(10)] == [True] * 5 + [False] * 5
    assert [problem.last_forward(v) for v in range(5)] == [1, 2, 3, 4, 4]


def test_what_runs_again_reads_no_new_weights() -> None:
    # Value 2 is needed up to op 6, and 1 up to op 7; from value 2 a convolution makes 3, which is not recomputed.
    problem = chain(MIXED)
    assert [problem.needed_until[v] for v in (1, 2)] == [7, 6]
    for update, may in ((6, False), (7, True)):
        ops = replace(problem.problem.ops, until=[[update] if op == 2 else [] for op in range(10)])
        changed = replace(problem, problem=replace(problem.problem, ops=ops))
        assert changed.may_recompute(2) is may, update


def test_vdnn_waits_after_each_layer_and_fetches_one_layer_ahead() -> None:
    expected = "0 -0 1 _0 -1 2 _1 -2 3 _2 +2 +1 =2 4 =1 +0 5 =0 6 7"
    for copy in (50, 1000):
        assert told(chain(CONVS, copy=copy), policies.VDNN_ALL) == expected


def test_vdnn_conv_leaves_what_other_layers_read() -> None:
    assert told(chain(MIXED), policies.VDNN_CONV) == "0 1 2 -2 3 _2 4 +2 5 =2 6 7 8 9"


def test_dymem_waits_at_the_end_of_the_forward_pass() -> None:
    # Copies of 1000 end nowhere near the layers of 100 that began them; of 50, within them.
    assert told(chain(CONVS, copy=1000), policies.DYMEM) == "0 -0 1 -1 2 -2 3 _0 _1 _2 +2 +1 =2 4 +0 =1 5 =0 6 7"
    assert told(chain(CONVS, copy=50), policies.DYMEM) == "0 -0 1 _0 -1 2 _1 -2 3 _2 +2 +1 =2 4 +0 =1 5 =0 6 7"


def test_dymem_waits_before_that_where_room_is_short() -> None:
    assert (
        told(chain(CONVS, copy=1000), policies.DYMEM, 3 * MIB) == "0 -0 1 -1 2 -2 _0 3 _1 _2 +2 =2 4 +1 =1 5 +0 =0 6 7"
    )


def test_dymem_has_two_convolutions_back_and_what_lies_between() -> None:
    # Ops 5 and 6 are those of `OTHER` and `CONV`, 7 and 8 of `OTHER` and `POOL`: only the first convolution counts before 9.
    assert told(chain(MIXED), policies.DYMEM).endswith("+3 +2 +1 +0 =3 5 =2 6 =1 7 =0 8 9")
    assert told(chain(MIXED), policies.DYMEM, 4 * MIB).endswith("+3 +2 =3 5 +1 =2 6 +0 =1 7 =0 8 9")
    assert told(chain(MIXED), policies.DYMEM, 3 * MIB).endswith("+3 =3 5 +2 =2 6 +1 =1 7 +0 =0 8 9")


def test_superneurons_evicts_what_was_used_least_recently_and_only_for_room() -> None:
    copies = policies.SUPERNEURONS_COPIES
    assert told(chain(CONVS), copies) == "0 1 2 3 4 5 6 7"
    assert told(chain(CONVS), copies, 3 * MIB) == "0 1 2 -0 _0 3 -1 _1 4 +1 =1 5 +0 =0 6 7"


def test_superneurons_recomputes_cheap_layers_from_convolutions() -> None:
    # Values 1 and 2 are dropped; both are recomputed for op 7, which reads 2, and stay for op 8.
    assert told(chain(MIXED), policies.SUPERNEURONS) == "0 1 2 3 4 5 1 2 6 7 8 9"


def test_superneurons_recomputes_for_each_layer_where_a_segment_is_large() -> None:
    # Four dropped values of 1 MiB take more than any layer: what 5 made again is gone when 4 is needed.
    problem = chain([CONV, POOL, POOL, POOL, POOL, CONV, OTHER])
    assert told(problem, policies.SUPERNEURONS) == "0 1 2 3 4 5 6 7 1 2 3 4 8 1 2 3 9 1 2 10 1 11 12 13"


def test_all_waits_for_each_copy() -> None:
    assert told(chain(CONVS), policies.ALL) == "0 1 -0 _0 2 -1 _1 3 -2 _2 -3 _3 +2 =2 +3 =3 4 +1 =1 5 +0 =0 6 7"


def test_largest_first_copies_no_more_than_it_must() -> None:
    problem = chain(CONVS)
    assert [plan.bytes_out for plan in schedules(problem, "largest-first", NEVER)][0] == 0
    few, *_ = schedules(problem, "largest-first", 4 * MIB)
    assert few.bytes_out == MIB and few.peak == 4 * MIB


def test_vdnn_dynamic_tries_what_is_quick_first() -> None:
    plans = list(schedules(chain(MIXED), "vdnn-dynamic", NEVER))
    assert [plan.bytes_out // MIB for plan in plans] == [0, 1, 4]
    assert [plan.peak for plan in plans] == sorted((plan.peak for plan in plans), reverse=True)


def step_problem(seed: int) -> LayeredProblem:
    """A training step of layers of some ops, whose backward pass reads several earlier values, some of them twice."""
    chosen = random.Random(seed)
    sizes, reads, layers = [], [], []

    def layer(kind: Kind, *read: int) -> int:
        first = len(sizes)
        for op in range(chosen.choice((1, 1, 2, 3))):
            reads.append(sorted({*read, *([len(sizes) - 1] if op else [])}))
            sizes.append(64 * chosen.randrange(1, 9))
        layers.append(Layer(kind, tuple(range(first, len(sizes)))))
        return len(sizes) - 1

    forward = [layer(CONV)]
    for _ in range(chosen.randrange(4, 12)):
        forward.append(layer(chosen.choice(list(Kind)), forward[-1], chosen.choice(forward)))
    count, last, ops = len(layers), forward[-1], len(sizes)
    for at in reversed(range(count)):
        last = layer(layers[at].kind, last, *chosen.sample(range(ops), 2), forward[at])
    ops = len(sizes)
    none: list[list[int]] = [[] for _ in range(ops)]
    lanes = Lanes(
        *(
            Lane(
                chosen.choice((0, 10)),
                1 << chosen.choice((18, 20)),
                chosen.choice((1024, 700)),
                chosen.choice((0, 25)),
                chosen.choice((0, 30)),
            )
            for _ in "ab"
        )
    )
    problem = RecomputeProblem(
        sizes=sizes,
        costs=[chosen.randrange(1, 500) for _ in range(ops)],
        once=[chosen.random() < 0.2 for _ in range(ops)],
        scratch=[chosen.choice((0, 64)) for _ in range(ops)],
        reads=reads,
        makes=[[op] for op in range(ops)],
        over=[[v for v in values[:1] if sizes[v] == sizes[op]] for op, values in enumerate(reads)],
        parts=none,
        until=none,
    )
    moves = OffloadProblem(problem, [chosen.random() < 0.9 for _ in range(ops)], lanes)
    return LayeredProblem(moves, layers, count)


@pytest.mark.parametrize("name", POLICIES)
def test_every_schedule_is_one_of_the_problem(name: PolicyName) -> None:
    copied = 0
    for seed in range(60):
        problem = step_problem(seed)
        whole = measure_schedule(problem.problem, [(Step.RUN, op) for op in range(len(problem.layer_of))])
        for share in (1.0, 0.7, 0.3):
            for plan in schedules(problem, name, int(share * whole.peak)):
                # `measure_schedule` has refused what reads bytes that are not there.
                assert plan.makespan >= whole.makespan
                copied += plan.bytes_out > 0
    assert copied > 60


def test_the_clock_is_that_of_the_search() -> None:
    for seed in range(40):
        problem = step_problem(seed)
        plan = simulate(problem, policies.DYMEM, NEVER)
        clock, copies = LaneClock(problem.problem.lanes), {}
        for step, number in plan.items:
            size = problem.problem.ops.sizes[number]
            if step is Step.RUN:
                clock.run(problem.problem.ops.costs[number])
            elif step is Step.OUT_START:
                copies[number] = clock.issue("out", size)
            elif step is Step.IN_START:
                copies[number] = clock.issue("in", size)
            elif step is Step.OUT_DONE:
                clock.wait("out", copies[number])
            elif step is Step.IN_DONE:
                clock.wait("in", copies[number])
        assert clock.now == plan.makespan, seed

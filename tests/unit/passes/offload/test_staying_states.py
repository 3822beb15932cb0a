# SPDX-License-Identifier: Apache-2.0
"""States that lie in the arena while a step begins and ends, and on the host between: less time, no more bytes, the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.copies import arena_states, host_params
from memc.ir.core import Array, Op, Placement, Value
from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.errors import CheckError
from memc.ir.evaluate import evaluate, evaluate_in_arena
from memc.ir.evaluate.async_copies import Times
from memc.ir.liveness import arena_bytes, lifetimes, peak
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.memory_plan import check_plan
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.passes.offload.host_states import place_states
from memc.passes.offload.link_rates import LINKS
from memc.passes.offload.state_finding import How, StatesOnHost
from memc.passes.offload.state_updates import StateUpdates
from memc.solvers.offload import Lane, Lanes

from .momentum_step import WIDTH, step

FIRST, LAYERS = 512, 6
"""Columns of the first weight, which is by far the largest and whose gradient comes last; and how many weights there are."""

LANE = Lane(latency=0, per_mib=200_000_000)
"""Of 5.2 GB/s: the moment of the first weight takes 12 us, where an op takes at least 2."""

HOW = How(CostModel(DEVICES["cuda"]), "slow", "a test", Lanes(LANE, LANE), 1, 64)


def placed(stay: bool) -> tuple[Module, StatesOnHost]:
    """A plan with all momenta on the host, as a step begins and ends or, with `stay`, where that is quicker in between."""
    module = step(FIRST, WIDTH, LAYERS)
    found = StateUpdates.of(module.main, 1)
    made = place_states(module.main, found, found.updates, None, HOW, stay)
    assert made is not None
    module.target = LINKS["h200"].target(module.target)
    verify(module)
    PassManager.parse("in-place,assign-addresses,group-copies").run(module)
    return module, made


def feeds(module: Module) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {p.name: (rng.standard_normal(p.type.shape) / 16).astype(np.float32) for p in module.main.params}


def named(module: Module, name: str) -> Value:
    return next(value for value in module.main.values() if value.name == name)


def start_and_done(module: Module) -> tuple[Op, Op]:
    """The copy out of the largest momentum."""
    start, done = (op for op in module.main.ops if "m0" in [value.name for value in op.operands] and "load" in op.name)
    return start, done


def test_what_would_leave_last_stays_and_the_step_is_shorter() -> None:
    module, made = placed(True)
    assert named(module, "m0") in arena_states(module.main) and named(module, "m0") not in host_params(module.main)
    assert made.staying >= FIRST * WIDTH * 4
    left, without = placed(False)
    assert without.staying == 0 and not arena_states(left.main)
    assert 0 < made.added < 0.6 * without.added
    assert arena_bytes(module.main, 64) == peak(module.main, 64) <= arena_bytes(left.main, 64)


def test_the_state_has_one_address_and_two_lifetimes() -> None:
    module, _ = placed(True)
    state, back = named(module, "m0"), named(module, "m0a")
    first, again = (life for life in lifetimes(module.main) if life.root is state)
    assert first.lower == 0 < first.upper < again.lower < again.upper == len(module.main.ops)
    assert back.root is state and state.placement == back.placement
    between = [v for life in lifetimes(module.main) for v in [life.root] if first.upper <= life.lower < again.lower]
    assert state.placement is not None
    low, high = state.placement.offset, state.placement.offset + state.type.nbytes
    places = [(v.placement.offset, v.placement.offset + v.type.nbytes) for v in between if v.placement is not None]
    assert any(max(low, begin) < min(high, end) for begin, end in places)  # Others use its bytes meanwhile.


@pytest.mark.parametrize("copies", ["start", "done", 1, 2, 3])
def test_three_steps_have_the_bits_of_resident_states(copies: Times) -> None:
    module, _ = placed(True)
    expected, got = feeds(module), feeds(module)
    for _ in range(3):
        expected |= evaluate(step(FIRST, WIDTH, LAYERS), expected)
        got |= evaluate_in_arena(module, got, copies=copies)
        assert all(got[name].tobytes() == expected[name].tobytes() for name in expected)


def test_the_text_of_a_plan_comes_back() -> None:
    module, _ = placed(True)
    again = parse(str(module))
    verify(again)
    check_plan(again, 64)
    check_copy_races(again)
    assert str(again) == str(module)


def test_nothing_may_lie_where_the_state_is_before_it_leaves() -> None:
    module, _ = placed(True)
    state = named(module, "m0")
    _, done = start_and_done(module)
    assert state.placement is not None
    t1 = named(module, "t1")
    assert module.main.ops.index(t1.op) < module.main.ops.index(done)  # type: ignore[arg-type]
    for value in module.main.values():
        if value.root is t1.root:
            value.placement = Placement("arena", state.placement.offset)
    with pytest.raises(CheckError):
        check_plan(module, 64)
    with pytest.raises(CheckError, match="wait for the copy|its data|other bytes"):
        check_copy_races(module)


def test_the_wait_before_its_bytes_are_used_is_needed() -> None:
    module, _ = placed(True)
    start, done = start_and_done(module)
    ops = module.main.ops
    brought = next(op for op in ops if op.name == "prefetch_start" and op.operands[0] is done.results[0])
    check_copy_races(module)
    ops.remove(done)
    ops.insert(ops.index(brought), done)
    with pytest.raises(CheckError):
        check_plan(module, 64)
        check_copy_races(module)


def test_a_state_that_leaves_must_lie_in_the_arena() -> None:
    module, _ = placed(True)
    for value in module.main.values():
        if value.root.name == "m0":
            value.placement = Placement("host", value.placement.offset if value.placement else 0)
    with pytest.raises(CheckError, match="in @arena"):
        check_plan(module, 64)

# SPDX-License-Identifier: Apache-2.0
"""When updates of states on the host run: later than they are ready where that hides copies, with the same results and no more bytes."""

from __future__ import annotations

import numpy as np
import pytest

from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.evaluate.plain import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.ir.verify.copy_races import check_copy_races
from memc.ir.verify.structure import verify
from memc.passes.manager import PassManager
from memc.passes.offload import host_states
from memc.passes.offload.host_states import place_states
from memc.passes.offload.link_rates import LINKS
from memc.passes.offload.state_finding import How, StatesOnHost
from memc.passes.offload.state_updates import StateUpdates
from memc.passes.offload.update_orders import delayed_orders, with_gradients
from memc.passes.placement.alias_plan import plan_aliases
from memc.solvers.offload import Lane, Lanes

from .momentum_step import ROWS, WIDTH, step

LANE = Lane(latency=0, per_mib=800_000_000)
"""Of 1.3 GB/s: 4 KiB take 3 us, where an op takes at least 2."""


HOW = How(CostModel(DEVICES["cuda"]), "slow", "a test", Lanes(LANE, LANE), 1, 64)


def placed(module: Module) -> StatesOnHost:
    """Of states placed in a module, which must be sound and compute the same."""
    function = module.main
    rng = np.random.default_rng(0)
    feeds = {p.name: rng.standard_normal(p.type.shape).astype(np.float32) for p in function.params}
    expected = evaluate(module, feeds)
    found = StateUpdates.of(function, 1)
    before = plan_aliases(function, 64).peak
    made = place_states(function, found, found.updates, None, HOW)
    assert made is not None
    module.target = LINKS["h200"].target(module.target)
    verify(module)
    assert plan_aliases(function, 64).peak <= before + max(update.bytes for update in found.updates)
    got = evaluate(module, feeds)
    assert got.keys() == expected.keys() and all(got[n].tobytes() == expected[n].tobytes() for n in got)
    PassManager.parse("in-place,assign-addresses,group-copies").run(module)
    check_copy_races(module)
    return made


def places(module: Module) -> dict[str, int]:
    return {op.results[0].name: index for index, op in enumerate(module.main.ops)}


def test_gradients_wait_to_hide_what_leaves_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the first weight, whose gradient is the last, takes 48 us to leave, and may not stay until the next step."""
    monkeypatch.setattr(host_states._Tries, "stay", lambda *_: None)
    module = step(512, WIDTH)
    assert places(module)["g0"] > max(places(module)[f"g{n}"] for n in range(1, 8))
    made = placed(module)
    at = places(module)
    waiting = [n for n in range(1, 8) if at[f"g{n}"] > at["m0a"]]
    assert waiting and all(at[f"m{n}a"] > at[f"g{n}"] for n in waiting)
    monkeypatch.setattr(host_states, "delayed_orders", lambda *_: iter(()))
    assert placed(step(512, WIDTH)).added > made.added


def test_updates_wait_for_states_that_have_no_room_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of the last weight is needed first, where the arena is fullest."""
    module = step(WIDTH, 512)
    made = placed(module)
    assert places(module)["m7a"] > places(module)["m6a"] or places(module)["m7a"] > places(module)["g7"] + 2
    monkeypatch.setattr(host_states, "ROUNDS", 0)
    assert placed(step(WIDTH, 512)).added > 1.2 * made.added


def test_what_may_wait() -> None:
    """A product that makes a gradient waits with its update, unless it reads a state, or something else reads what it makes."""
    module = step(WIDTH, WIDTH, layers=3)
    found = StateUpdates.of(module.main, 1)
    late = with_gradients(module.main, found.updates)
    before = {update.ops[0].result.name: [op.result.name for op in moved.before] for update, moved in late.items()}
    assert before == {"sum0": ["g0"], "sum1": ["g1"], "sum2": ["g2"]}
    assert all(op.result.name != f"g{n}" for n, (_, moved) in enumerate(late.items()) for op in moved.behind)
    module.main.returns.append(next(op.result for op in module.main.ops if op.result.name == "g1"))
    late = with_gradients(module.main, found.updates)
    assert {update.ops[0].result.name for update in late} == {"sum0", "sum2"}
    text = (
        str(step(WIDTH, WIDTH, layers=3))
        .replace("%g1 = matmul(%t1, ", "%g1 = matmul(%w1, ")
        .replace(f"f32[{ROWS},{WIDTH}]", f"f32[{WIDTH},{WIDTH}]")
    )
    function = parse(text).main
    late = with_gradients(function, StateUpdates.of(function, 1).updates)
    assert "sum1" not in {update.ops[0].result.name for update in late}


def test_only_gradients_that_take_longer_than_their_states_wait() -> None:
    module = step(512, WIDTH)
    updates = StateUpdates.of(module.main, 1).updates
    late = with_gradients(module.main, updates)
    for order in delayed_orders(updates, late, HOW):
        assert {update.ops[0] for update in order} == {update.ops[0] for update in updates}
        assert not order[[bool(update.before) for update in order].index(True) - 1].before
        assert all(update.ops[0].result.name != "sum0" for update in order if update.before)
    slow = How(HOW.costs, "slow", "a test", Lanes(Lane(0, 8_000_000_000), LANE), 1, 64)
    assert not list(delayed_orders(updates, late, slow))

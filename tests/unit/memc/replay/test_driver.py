# SPDX-License-Identifier: Apache-2.0
"""When steps are watched, planned and replayed, and what that takes, on a device of host memory."""

from __future__ import annotations

import random

import pytest

from memc.replay import ReplayPlan, make_plan
from memc.replay import driver as driver_module
from memc.replay.driver import MOST_PLANS, Driver
from memc.replay.engine import StepMode

from .applications import KIB, Application, watched


class Training:
    """Steps over a sequence: activations that a backward pass frees in reverse, and gradients, which the next step frees at first."""

    def __init__(self, **options: object) -> None:
        self.application = Application()
        self.driver = Driver(self.application.engine, **options)  # type: ignore[arg-type]
        self.gradients: list[int] = []
        self.native = 0
        """Bytes outside the arena."""
        self.most = 0
        self.sizes: dict[int, int] = {}

    def ask(self, nbytes: int) -> int:
        block, offset = self.application.ask(nbytes)
        if offset == -1:
            self.sizes[block] = nbytes
        self.most = max(self.most, sum(self.sizes.values()) + self.application.rehearsal.arena_bytes)
        return block

    def free(self, blocks: list[int]) -> None:
        self.application.free(*blocks)
        for block in blocks:
            self.sizes.pop(block, None)

    def step(self, length: int, key: int | None = None, wait: bool = True) -> StepMode:
        self.driver.prepare_step(0 if key is None else key, key is not None)
        doing = self.driver.begin_step()
        data = self.ask(length * KIB)
        self.free(self.gradients)
        kept = [self.ask(length * size * KIB) for size in (4, 2, 6, 3)]
        self.gradients = []
        while kept:
            work = self.ask(length * 2 * KIB)
            self.gradients.append(self.ask(8 * KIB))
            self.free([kept.pop(), work])
        self.free([data])
        self.driver.end_step(True)
        if wait:
            self.driver.wait()
        self.application.check()
        return doing


def test_two_equal_steps_are_planned_and_the_arena_is_made_after_the_gradients() -> None:
    training = Training()
    assert [training.step(3) for _ in range(5)] == [StepMode.WATCH] * 2 + [StepMode.REPLAY] * 3
    statistics = training.driver.engine.statistics()
    assert statistics.planned_native == 1, "the data of the step in which the arena is made"
    assert statistics.requests == statistics.hits + 1 == 3 * 13
    assert training.driver.watched == 2 and training.driver.keys[0].left == 4 * 8 * KIB
    # What the largest step has live, and the data that was asked for before the arena was made.
    assert training.most <= training.application.rehearsal.arena_bytes + 4 * 8 * KIB + 3 * KIB
    assert training.sizes == {}


def test_steps_of_a_key_are_planned_after_one() -> None:
    training = Training()
    for length in (4, 3):
        assert training.step(length, key=length) == StepMode.WATCH
    assert training.step(3, key=3) == StepMode.WATCH, "planned once the next step has freed its gradients"
    assert training.step(3, key=3) == StepMode.REPLAY
    assert training.driver.watched == 3


def test_lengths_at_random_take_no_more_than_the_longest_step() -> None:
    """Each length is seen seldom; memory grows with the longest so far, and stays."""
    rng = random.Random(4)
    training = Training()
    most: dict[int, int] = {}
    longest = 0
    for turn in range(300):
        length = rng.randint(10, 50)
        longest = max(longest, length)
        training.most = 0
        training.step(length, key=length, wait=turn % 3 == 0)
        most[turn] = training.most
        live = longest * KIB * 18 + 8 * 8 * KIB
        assert training.most <= 1.25 * live, (turn, length, training.most / live)
    # Flat, but for data whose place the gradients of a step of another length hold.
    later = [most[turn] for turn in range(150, 300)]
    assert max(later) <= training.application.rehearsal.arena_bytes + 50 * KIB
    assert min(later) == training.application.rehearsal.arena_bytes
    statistics = training.driver.engine.statistics()
    assert statistics.plans <= MOST_PLANS and statistics.replans <= 2 and statistics.evicted == 0
    assert training.driver.watched <= 5


def test_more_keys_than_the_engine_keeps_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that the engine has dropped is handed over again; a key that was not used for long is forgotten."""
    monkeypatch.setattr(driver_module, "MOST_PLANS", 2)
    monkeypatch.setattr(driver_module, "MOST_KEYS", 4)
    training = Training()
    plans = {key: make_plan(watched((key + 1, 1), (2, 2))) for key in range(6)}
    for key, plan in plans.items():
        training.driver.give(key, plan)
    assert training.driver.engine.statistics().plans == 2
    for key in (5, 4, 3, 5):
        training.driver.prepare_step(key, True)
        assert training.driver.begin_step() == StepMode.REPLAY
        block, offset = training.application.ask((key + 1) * KIB)
        assert offset == plans[key].offsets[0]
        training.application.free(block)
        training.driver.end_step(True)
    assert set(training.driver.keys) == {2, 3, 4, 5} or len(training.driver.keys) <= 4
    training.application.check()


def test_a_plan_that_does_not_fit_is_refused_once() -> None:
    asked: list[tuple[int, int]] = []

    def fits(plan: ReplayPlan, left: int) -> bool:
        asked.append((plan.arena_bytes, left))
        return False

    training = Training(fits=fits)
    assert {training.step(3) for _ in range(8)} == {StepMode.WATCH}
    assert len(asked) == 1 and asked[0][1] == 4 * 8 * KIB


def test_settled_after_the_first_step_with_an_arena() -> None:
    calls: list[StepMode] = []
    training = Training(settle=lambda: calls.append(training.driver.doing))
    for _ in range(6):
        training.step(3)
    assert calls == [StepMode.REPLAY]


def test_a_planner_that_fails_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> ReplayPlan:
        raise ValueError("no\nplan")

    monkeypatch.setattr(driver_module, "make_plan", fail)
    training = Training(label="cuda:0: ")
    assert {training.step(3) for _ in range(6)} == {StepMode.WATCH}
    assert training.driver.notes == ["cuda:0: not replayed: planning failed: no plan"]


def test_steps_that_keep_changing_are_given_up() -> None:
    training = Training()
    rng = random.Random(1)
    doing = [training.step(3) for _ in range(4)]
    doing += [training.step(rng.randint(4, 90)) for _ in range(30)]
    assert doing[3] == StepMode.REPLAY and doing[-1] == StepMode.PASS
    assert training.driver.keys[0].refused and "keep changing" in training.driver.engine.warning()

# SPDX-License-Identifier: Apache-2.0
"""Steps of an application that deviate from their plan at random, for `replay_soak.py` and the tests of replay."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from memc.replay import ReplayPlan, WatchedStep, make_plan
from memc.replay.engine import Event, EventKind, Int64s, Rehearsal, StepFindings

DEVIATIONS = (
    "insert",
    "drop",
    "swap",
    "resize",
    "late free",
    "early free",
    "other thread",
    "other stream",
    "second stream",
)

SIDE = 100
"""The first of the streams that deviations use; plans' streams are 0, 1, ..."""


@dataclass
class Block:
    """A request of a step that is about to be played. Times are positions in the step: request i comes at i."""

    at: float
    until: float
    """Of its free; from the step's count on, in a later step."""
    nbytes: int
    stream: int
    thread: int = 0
    elsewhere: bool = False
    """Whether another thread frees it."""
    second: int | None = None
    """A second stream that uses it."""


def random_step(rng: random.Random, count: int, streams: int) -> WatchedStep:
    """A step of `count` requests, a third of which live long; streams appear one after another."""
    rows = []
    for i in range(count):
        life = rng.randrange(1, count) if rng.random() < 0.3 else rng.randrange(1, 6)
        most = count + i if rng.random() < 0.1 else count
        rows.append((rng.choice((512, 1024, 1536, 4096, 6144)) - rng.randrange(2), i % streams, 0, min(i + life, most)))
    return WatchedStep.of(rows)


def add_plan(rehearsal: Rehearsal, plan: ReplayPlan, key: int = 0) -> None:
    rehearsal.engine.add_plan(key, plan.nbytes, plan.streams, plan.threads, plan.offsets, plan.cyclic, plan.arena_bytes)


def blocks_of(step: WatchedStep) -> list[Block]:
    """The step as it was watched."""
    columns = zip(step.nbytes.tolist(), step.streams.tolist(), step.freed.tolist())
    return [Block(i, freed - 0.5, nbytes, stream) for i, (nbytes, stream, freed) in enumerate(columns)]


def deviate(rng: random.Random, blocks: list[Block], kind: str) -> None:
    """One deviation."""
    count = len(blocks)
    if kind == "insert":
        at = rng.uniform(-1, count)
        model = rng.choice(blocks) if blocks and rng.random() < 0.7 else Block(0, 0, rng.randrange(1, 9000), 0)
        blocks.append(Block(at, at + rng.choice((1.2, 5, 40)), model.nbytes, model.stream))
        return
    if not blocks:
        return
    index = rng.randrange(count)
    block = blocks[index]
    if kind == "drop":
        blocks.pop(index)
    elif kind == "swap":
        other = blocks[(index + rng.choice((1, 1, 5))) % count]
        block.at, other.at = other.at, block.at
    elif kind == "resize":
        block.nbytes = max(1, round(block.nbytes * rng.choice((0.3, 0.6, 0.9, 1.1, 3))))
    elif kind == "late free":
        block.until += rng.choice((1, 3, 10, 30, 70))
    elif kind == "early free":
        block.until = block.at + 0.1
    elif kind == "other thread":
        block.thread, block.elsewhere = rng.randrange(2), True
    elif kind == "other stream":
        block.stream = rng.choice((0, 1, SIDE, SIDE + 1))
    else:
        block.second = rng.choice((0, 1, SIDE, SIDE + 1))


@dataclass
class Player:
    """Gives blocks their numbers, and carries those over that outlive a step."""

    rng: random.Random
    unused: list[int] = field(default_factory=list)
    numbers: int = 0
    alive: list[tuple[float, int, bool]] = field(default_factory=list)
    """Of earlier steps: when in the next they are freed, the number, whether elsewhere."""
    freed: list[int] = field(default_factory=list)
    """In the events that are being made."""
    awaited: list[int] = field(default_factory=list)
    """Freed elsewhere, perhaps not yet."""

    def number(self) -> int:
        if self.unused:
            return self.unused.pop()
        self.numbers += 1
        return self.numbers - 1

    def step(
        self, blocks: list[Block], count: int, key: int = 0, completed: bool = True, until: float = float("inf")
    ) -> list[Event]:
        """The events of a step of `count` planned requests. One not completed ends at `until`, where an exception leaves it."""
        timed: list[tuple[float, int, Event]] = []
        alive = []
        for at, number, elsewhere in self.alive:
            if at < count and at < until:
                timed.append((at, len(timed), self._free(number, elsewhere)))
            else:
                alive.append((at - count, number, elsewhere))
        for block in blocks:
            if block.at >= until:
                continue
            number = self.number()
            end = max(block.until, block.at + 0.01)
            timed.append((block.at, len(timed), (EventKind.ALLOCATE, number, block.nbytes, block.stream, block.thread)))
            if block.second is not None and block.second != block.stream:
                at = (block.at + max(block.at, min(end, count))) / 2
                timed.append((at, len(timed), (EventKind.USE, number, 0, block.second, 0)))
            if end < count and end < until:
                timed.append((end, len(timed), self._free(number, block.elsewhere)))
            else:
                alive.append((end - count, number, block.elsewhere))
        self.alive = alive
        timed.sort()
        begin: Event = (EventKind.BEGIN_STEP, key, 0, 0, 0)
        end_step: Event = (EventKind.END_STEP, int(completed), 0, 0, 0)
        return [begin, *(event for _, _, event in timed), end_step, *self._joined()]

    def free_all(self) -> list[Event]:
        """All that is alive."""
        events = [self._free(number, False) for _, number, _ in self.alive]
        self.alive = []
        return [*events, *self._joined(always=True)]

    def _free(self, number: int, elsewhere: bool) -> Event:
        (self.awaited if elsewhere else self.freed).append(number)
        return (EventKind.FREE_ELSEWHERE if elsewhere else EventKind.FREE, number, 0, 0, 0)

    def _joined(self, always: bool = False) -> Iterator[Event]:
        self.unused += self.freed
        self.freed = []
        if always or self.rng.random() < 0.5:
            self.unused += self.awaited
            self.awaited = []
            yield (EventKind.JOIN, 0, 0, 0, 0)


@dataclass
class Soak:
    """What a run has found."""

    deviations: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    requests: int = 0
    hits: int = 0
    late_returns: int = 0
    """Undisturbed steps, with nothing left over from before, of which a planned request was not served."""
    wrong: int = 0
    first_wrong: str = ""
    gave_up: int = 0
    """Keys, each of which then got its plan again."""
    waits: int = 0
    checked: int = 0


def soak(seed: int, deviations: int, count: int = 40, streams: int = 2, fills: bool = True) -> Iterator[Soak]:
    """Bursts of disturbed steps of three keys, each followed by three steps as planned. Yields what was found so far after each
    burst, until there were so many deviations."""
    rng = random.Random(seed)
    rehearsal = Rehearsal(fills=fills)
    watched = [random_step(rng, count + 7 * key, streams) for key in range(3)]
    plans = [make_plan(step, solver="first-fit") for step in watched]
    for key, plan in enumerate(plans):
        add_plan(rehearsal, plan, key)
    player, found = Player(rng), Soak()
    while found.deviations.total() < deviations:
        for _ in range(rng.randrange(1, 4)):
            key = rng.randrange(3)
            gave_up = _disturbed(rng, rehearsal, player, watched[key], key, found)
            if gave_up or rng.random() < 0.02:
                add_plan(rehearsal, plans[key], key)
        rehearsal.play(player.free_all())
        key = rng.randrange(3)
        for _ in range(3):
            events = player.step(blocks_of(watched[key]), len(watched[key]), key)
            asks = np.array([event[0] == EventKind.ALLOCATE for event in events])
            found.late_returns += int((_play(rehearsal, events, found)[asks] >= 0).sum() < plans[key].planned.sum())
        statistics = rehearsal.engine.statistics()
        found.wrong, found.first_wrong = rehearsal.wrong, rehearsal.first_wrong
        found.hits, found.waits, found.checked = statistics.hits, statistics.waits, statistics.checked
        yield found


def _disturbed(
    rng: random.Random, rehearsal: Rehearsal, player: Player, step: WatchedStep, key: int, found: Soak
) -> bool:
    """Returns whether the key was given up."""
    blocks = blocks_of(step)
    for _ in range(rng.randrange(1, 14)):
        kind = rng.choice(DEVIATIONS)
        deviate(rng, blocks, kind)
        found.deviations[kind] += 1
    completed = rng.random() < 0.95
    until = float("inf") if completed else rng.uniform(0, len(step))
    events = player.step(blocks, len(step), key, completed, until)
    if rng.random() < 0.05:
        first, last = sorted(rng.sample(range(len(events)), 2))
        events.insert(last, (EventKind.RESUME, 0, 0, 0, 0))
        events.insert(first, (EventKind.INTERRUPT, 0, 0, 0, 0))
    ends = [at for at, event in enumerate(events) if event[0] == EventKind.END_STEP]
    gave_up = StepFindings.GAVE_UP in StepFindings(int(_play(rehearsal, events, found)[ends[0]]))
    found.gave_up += gave_up
    return gave_up


def _play(rehearsal: Rehearsal, events: list[Event], found: Soak) -> Int64s:
    columns = np.array(events, np.int64)
    found.steps += 1
    found.requests += int((columns[:, 0] == EventKind.ALLOCATE).sum())
    return rehearsal.play(columns)

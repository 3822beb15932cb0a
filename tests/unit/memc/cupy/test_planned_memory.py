# SPDX-License-Identifier: Apache-2.0
"""Planned memory over CuPy's allocator interface, with a CuPy of host memory: which bytes arrays get, and that they stay their own."""

from __future__ import annotations

import gc
import random
import sys
import threading
from pathlib import Path

import pytest

from memc.cupy import PlannedMemory, calls, planned_memory
from memc.ir.errors import CheckError, UnsupportedError, UsageError

from .fake_cupy import Array, FakeCupy

SIZES = (4000, 600, 9000, 512, 100)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    return installed(FakeCupy(), monkeypatch)


def installed(found: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    monkeypatch.setitem(sys.modules, "cupy", found)
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.stream", found.backend())
    monkeypatch.setattr(calls, "driver", found.driver)
    return found


class Program:
    """A step: activations one after another, each of which lives until the one after the next, and a state for the next step."""

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy = cupy
        self.state: Array | None = None
        self.pointers: list[int] = []

    def step(self, sizes: tuple[int, ...] = SIZES) -> None:
        live: list[Array] = []
        self.pointers = []
        for size in sizes:
            live.append(self.cupy.array(size))
            self.pointers.append(live[-1].ptr)
            assert all(array.intact() for array in live)
            del live[:-2]
        if self.state is not None:
            assert self.state.intact()
        self.state = None
        self.state = self.cupy.array(700)
        self.pointers.append(self.state.ptr)
        assert all(array.intact() for array in live)


def run(
    planned: PlannedMemory, program: Program, steps: int, sizes: tuple[int, ...] = SIZES, key: object = None
) -> None:
    for _ in range(steps):
        planned.wait()
        with planned.step(key):  # type: ignore[arg-type]
            program.step(sizes)


def test_steps_are_served_from_one_arena_once_two_were_equal(cupy: FakeCupy) -> None:
    program = Program(cupy)
    with planned_memory() as planned:
        run(planned, program, 4)
        assert planned.report().state == "replay"
        asked = cupy.pool.asked
        run(planned, program, 1)
        first = list(program.pointers)
        run(planned, program, 3)
        assert program.pointers == first and cupy.pool.asked == asked
        found = planned.report()
        assert found.hits >= 3 * (len(SIZES) + 1) and found.plans == 1
        # The first three of a step, and the state of the step before.
        assert found.arena_bytes == found.lower_bound == 4096 + 1024 + 9216 + 1024
        assert max(first) + 700 - min(first) <= found.arena_bytes
        assert found.reserved_before is not None and found.reserved_after is not None
    assert planned.report().hits == found.hits
    assert cupy.allocator == cupy.pool.malloc
    assert program.state is not None and program.state.intact()


def test_lengths_have_plans_of_their_own(cupy: FakeCupy) -> None:
    program = Program(cupy)
    with planned_memory() as planned:
        for _ in range(2):
            for length in (3, 5, 2):
                run(planned, program, 1, SIZES[:length], length)
        assert planned.report().watched_steps == 3
        asked = cupy.pool.asked
        for length in (5, 2, 3, 3, 2, 5):
            run(planned, program, 1, SIZES[:length], length)
        found = planned.report()
        # The state lives into a step of another length, and has no place. The shortest follow the plan of the longest
        # but where the state of a longer step is in the way.
        assert found.plans == 2 and found.fallback_count <= 3 and cupy.pool.asked <= asked + 10
        assert found.arena_bytes == found.lower_bound == 4096 + 1024 + 9216


def step_of_lengths(cupy: FakeCupy, length: int) -> None:
    kept = [cupy.array(700 * length) for _ in range(length)]
    while kept:
        assert kept.pop().intact()
        assert cupy.array(300 * length).intact()


def test_many_lengths_never_take_more_than_without_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than an engine keeps plans, each seldom: what is not planned yet is served from gaps of the arena."""
    most = []
    for planning in (False, True):
        cupy = installed(FakeCupy(), monkeypatch)
        rng, totals = random.Random(3), []
        with planned_memory() as planned:
            for _ in range(200):
                length = rng.randint(10, 50)
                if not planning:
                    step_of_lengths(cupy, length)
                else:
                    planned.wait()
                    with planned.step(length):
                        step_of_lengths(cupy, length)
                totals.append(cupy.pool.total_bytes())
            found = planned.report()
        most.append(max(totals[50:]))
    assert most[1] < 0.75 * most[0]
    assert (
        found.watched_steps <= 5
        and found.from_gaps < 0.2 * found.requests
        and found.hits > 0.99 * found.requests > 5000
    )


def test_what_is_not_as_planned_gets_other_bytes(cupy: FakeCupy) -> None:
    program = Program(cupy)
    rng = random.Random(1)
    kept: list[Array] = []
    with planned_memory() as planned:
        run(planned, program, 4, SIZES * 10)
        for _ in range(100):
            planned.wait()
            sizes = list(SIZES * 10)
            other = rng.random()
            if other < 0.1:
                sizes[rng.randrange(len(sizes))] = rng.choice(SIZES)
            elif other < 0.2:
                sizes.insert(rng.randrange(len(sizes)), rng.choice((300, 20000)))
            with planned.step():
                program.step(tuple(sizes))
                if other > 0.8:
                    kept.append(cupy.array(rng.choice(SIZES)))
            assert all(array.intact() for array in kept)
            if rng.random() < 0.3:
                kept = kept[1:]
        found = planned.report()
        assert found.fallback_count > 10 and found.hits > 4000 and found.state == "replay"
        assert all("expected" in each.first for each in found.fallbacks.values())


def test_strict_names_the_first_request_that_was_not_as_planned(cupy: FakeCupy) -> None:
    program = Program(cupy)
    with planned_memory(strict=True) as planned:
        run(planned, program, 4)
        with pytest.raises(CheckError, match="strict: step 5, request 2: expected 9,000 bytes by plan, got 20,000"):
            run(planned, program, 1, (4000, 600, 20000, 512, 100))
        run(planned, program, 1)


def test_a_plan_is_saved_and_followed_from_the_first_step_on(cupy: FakeCupy, tmp_path: Path) -> None:
    program = Program(cupy)
    path = tmp_path / "step.plan.json"
    with planned_memory() as planned:
        with pytest.raises(UsageError, match="save: expected a key with a plan, got None"):
            planned.save(path)
        run(planned, program, 4)
        planned.save(path)
    program.state = None
    with planned_memory(path, strict=True) as planned:
        asked = cupy.pool.asked
        run(planned, program, 3)
        assert cupy.pool.asked == asked + 1 and planned.report().watched_steps == 0


def test_between_steps_and_interrupted_requests_are_native(cupy: FakeCupy) -> None:
    program = Program(cupy)
    with planned_memory(strict=True) as planned:
        run(planned, program, 4)
        asked = cupy.pool.asked
        outside = cupy.array(4000)
        with planned.step():
            with planned.interrupt():
                evaluation = cupy.array(4000)
            program.step()
        assert cupy.pool.asked == asked + 2 and outside.intact() and evaluation.intact()


def test_another_stream_has_other_bytes(cupy: FakeCupy) -> None:
    def step() -> tuple[int, int]:
        first = cupy.array(4000)
        pointer = first.ptr
        del first
        cupy.stream = 7
        second = cupy.array(4000)
        cupy.stream = 0
        assert second.intact()
        return pointer, second.ptr

    with planned_memory() as planned:
        for _ in range(5):
            planned.wait()
            with planned.step():
                pointers = step()
        assert planned.report().state == "replay" and planned.report().arena_bytes == 2 * 4096
    assert pointers[0] != pointers[1]


def test_blocks_outlive_their_region(cupy: FakeCupy) -> None:
    program = Program(cupy)
    with planned_memory() as planned:
        run(planned, program, 5)
    gc.collect()
    others = [cupy.array(size) for size in SIZES for _ in range(5)]
    assert program.state is not None and program.state.intact() and all(array.intact() for array in others)


def test_a_block_that_is_kept_for_ever_is_planned_around(cupy: FakeCupy) -> None:
    program = Program(cupy)
    kept: list[Array] = []

    def step() -> None:
        program.step()
        held = cupy.array(3000)
        if len(kept) < 1 and planned.report().replayed_steps > 2:
            kept.append(held)

    with planned_memory() as planned:
        for _ in range(20):
            planned.wait()
            with planned.step():
                step()
            assert all(array.intact() for array in kept)
        before = planned.report()
        for _ in range(10):
            with planned.step():
                step()
        found = planned.report()
    assert len(kept) == 1 and kept[0].intact()
    assert found.fallback_count == before.fallback_count and found.hits - before.hits >= 10 * 6


def test_frees_on_other_threads(cupy: FakeCupy) -> None:
    with planned_memory(strict=True) as planned:
        for _ in range(6):
            planned.wait()
            with planned.step():
                held = [cupy.array(4000), cupy.array(512)]
                thread = threading.Thread(target=held.clear)
                thread.start()
                thread.join()
                assert cupy.array(9000).intact()
        assert planned.report().hits >= 6


def test_memory_that_runs_out_is_an_error_of_cupys(cupy: FakeCupy) -> None:
    with planned_memory() as planned, planned.step():
        cupy.pool.capacity = 0
        with pytest.raises(MemoryError):
            cupy.array(4000)
        cupy.pool.capacity = 2**40
        assert cupy.array(4000).intact()


def test_without_memory_for_the_arena_steps_go_on(cupy: FakeCupy) -> None:
    program = Program(cupy)
    with planned_memory() as planned:
        run(planned, program, 2)
        cupy.pool.capacity = cupy.pool.total_bytes() + 1000
        cupy.pool.free_all_blocks = lambda: None  # type: ignore[method-assign]
        run(planned, program, 2)
        assert program.state is not None and program.state.intact()
        assert planned.report().hits == 0 and planned.report().fallbacks["without an arena"].count > 0


def test_other_devices_and_empty_blocks_are_native(cupy: FakeCupy) -> None:
    with planned_memory(strict=True) as planned:
        for _ in range(4):
            planned.wait()
            with planned.step():
                cupy.device = 1
                elsewhere = cupy.array(4000)
                cupy.device = 0
                empty = cupy.array(0)
                here = cupy.array(4000)
                assert elsewhere.intact() and empty.intact() and here.intact()
                del here
        assert planned.report().requests == 2 and planned.report().hits == 2


def test_regions_and_steps_do_not_nest(cupy: FakeCupy) -> None:
    with planned_memory() as planned:
        with pytest.raises(UsageError, match="got one within another"), planned_memory():
            pass
        with planned.step(), pytest.raises(UsageError, match="got one within another"), planned.step():
            pass
    with pytest.raises(UsageError, match="got one outside of it"), planned.step():
        pass
    with pytest.raises(UsageError, match="report: expected a region that was entered"):
        planned_memory().report()


def test_what_is_missing_is_named(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise cupy.cuda.runtime.CUDARuntimeError("cudaErrorInsufficientDriver: no\ndriver")

    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", refuse)
    with pytest.raises(UnsupportedError, match="expected a CUDA device, got: cudaErrorInsufficientDriver: no driver"):
        planned_memory().__enter__()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(UnsupportedError, match="expected CuPy, got: .*; install cupy-cuda13x"):
        planned_memory().__enter__()


def test_a_thread_local_allocator_is_refused(cupy: FakeCupy) -> None:
    def refuse(_: object) -> None:
        raise ValueError("cannot set while using_allocator")

    cupy.cuda.set_allocator = refuse
    with pytest.raises(UsageError, match="expected no cupy.cuda.using_allocator around it"):
        planned_memory().__enter__()

# SPDX-License-Identifier: Apache-2.0
"""States that lie in the host's space between runs, on the CPU: read, updated and written back by copies beside the ops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import memc
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.runtime.execute.stateful import Stateful

ON_HOST = """func @main(%g: f32[N] {role = input}, %m: f32[N] {role = state}, %w: f32[N] {role = state}) -> (f32[] {name = "loss"}, f32[N] {name = "m"}, f32[N] {name = "w"}) {
  %p0 = prefetch_start(%m) {lane = "h2d"} : f32[N]
  %loss = reduce_sum(%w) {axes = [0], keepdims = false} : f32[]
  %p = prefetch_done(%p0, %m) : f32[N]
  %new = add(%p, %g) : f32[N]
  %h0 = offload_start(%new) {lane = "d2h"} : f32[N] alias %m[0]
  %moved = sub(%w, %new) : f32[N]
  %w1 = assign(%w, %moved) : f32[N]
  %h = offload_done(%h0, %new) : f32[N] alias %m[0]
  return %loss, %h, %w1
}
"""

STAYING = """func @main(%g: f32[N] {role = input}, %m: f32[N] {role = state}, %w: f32[N] {role = state}) -> (f32[] {name = "loss"}, f32[N] {name = "m"}, f32[N] {name = "w"}) {
  %h0 = offload_start(%m) {lane = "d2h"} : f32[N]
  %h = offload_done(%h0, %m) : f32[N]
  %loss = reduce_sum(%w) {axes = [0], keepdims = false} : f32[]
  %p0 = prefetch_start(%h) {lane = "h2d"} : f32[N] alias %m[0]
  %p = prefetch_done(%p0, %h) : f32[N] alias %m[0]
  %sum = add(%p, %g) : f32[N]
  %new = assign(%p, %sum) : f32[N]
  %moved = sub(%w, %new) : f32[N]
  %w1 = assign(%w, %moved) : f32[N]
  return %loss, %new, %w1
}
"""
"""The state %m lies in the arena while a run begins and ends, and on the host between."""

RESIDENT = """func @main(%g: f32[N] {role = input}, %m: f32[N] {role = state}, %w: f32[N] {role = state}) -> (f32[] {name = "loss"}, f32[N] {name = "m"}, f32[N] {name = "w"}) {
  %loss = reduce_sum(%w) {axes = [0], keepdims = false} : f32[]
  %sum = add(%m, %g) : f32[N]
  %new = assign(%m, %sum) : f32[N]
  %moved = sub(%w, %new) : f32[N]
  %w1 = assign(%w, %moved) : f32[N]
  return %loss, %new, %w1
}
"""


def module(text: str, size: int) -> Module:
    made = parse(text.replace("N", str(size)))
    rng = np.random.default_rng(size)
    made.weights.update((name, rng.standard_normal(size).astype(np.float32)) for name in ("m", "w"))
    return made


def compiled(text: str, size: int, level: int = 2) -> Stateful:
    executable = memc.compile(module(text, size), opt_level=level).load()
    assert isinstance(executable, Stateful)
    return executable


def trace(step: Stateful, size: int, steps: int = 5, seed: int = 0) -> list[bytes]:
    """The bits of all results and states after each of some steps."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        results = step.run_numpy({"g": rng.standard_normal(size).astype(np.float32)})
        found += [results["loss"].tobytes(), *(array.tobytes() for array in step.state().values())]
    return found


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [1, 3, 257, 70_001])
@pytest.mark.parametrize("text", [ON_HOST, STAYING])
def test_steps_have_the_bits_of_resident_states(text: str, size: int, level: int) -> None:
    assert trace(compiled(text, size, level), size) == trace(compiled(RESIDENT, size, level), size)


@pytest.mark.parametrize("times", ["thread", "at-start", "at-done", "random:1", "random:2", "random:7"])
@pytest.mark.parametrize("text", [ON_HOST, STAYING])
def test_copies_at_any_time(text: str, times: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trace(compiled(RESIDENT, 4099), 4099, 20)
    monkeypatch.setenv("MEMC_COPIES", times)
    assert trace(compiled(text, 4099), 4099, 20) == expected


def test_the_update_runs_in_the_window() -> None:
    compilation = memc.compile(module(ON_HOST, 1024))
    report = compilation.report
    assert report.host_bytes == 4096 and report.weights_bytes == 4096  # m there, w here.
    new = next(value for value in compilation.module.main.values() if value.name == "new")
    assert new.root.name == "p0" and new.alias is not None


def test_a_state_that_stays_takes_bytes_of_the_arena() -> None:
    compilation = memc.compile(module(STAYING, 1024))
    report, main = compilation.report, compilation.module.main
    assert report.host_bytes == 4096 and report.weights_bytes == 4096  # What left, and w.
    m, new = (next(value for value in main.values() if value.name == name) for name in ("m", "new"))
    assert m.placement is not None and m.placement.space == "arena" and new.root is m
    assert report.arena_bytes == 8192  # With %sum.


@pytest.mark.parametrize("text", [ON_HOST, STAYING])
def test_sessions_have_states_of_their_own(text: str) -> None:
    first, resident = compiled(text, 513), compiled(RESIDENT, 513)
    trace(first, 513), trace(resident, 513)
    second = first.session()
    before = {name: array.tobytes() for name, array in second.state().items()}
    assert before == {name: array.tobytes() for name, array in first.state().items()}
    expected = trace(resident, 513, seed=1)
    assert trace(first, 513, seed=1) == expected
    assert {name: array.tobytes() for name, array in second.state().items()} == before
    assert trace(second, 513, seed=1) == expected


@pytest.mark.parametrize("saved", [RESIDENT, ON_HOST, STAYING])
@pytest.mark.parametrize("restored", [RESIDENT, ON_HOST, STAYING])
def test_saved_from_one_and_restored_into_another(saved: str, restored: str, tmp_path: Path) -> None:
    given, other = compiled(saved, 130), compiled(restored, 130)
    trace(given, 130)
    given.save(tmp_path / "state.safetensors")
    other.restore(tmp_path / "state.safetensors")
    assert trace(other, 130, seed=3) == trace(given, 130, seed=3)


@pytest.mark.parametrize("text", [ON_HOST, STAYING])
def test_states_are_set_by_name(text: str) -> None:
    step = compiled(text, 16)
    step.load_state({"m": np.full(16, 2, np.float32)}, partial=True)
    w = step.state()["w"]
    step.run_numpy({"g": np.ones(16, np.float32)})
    assert (step.state()["m"] == 3).all() and step.state()["w"].tobytes() == (w - np.float32(3)).tobytes()

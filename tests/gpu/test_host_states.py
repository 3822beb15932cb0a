# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: optimizer states in pinned memory between steps. Skips itself elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import memc
from memc.runtime.execute.load import load

from .test_copies import LAYERS, TIMES, WAYS, WIDTH, network, same, taken

pytestmark = pytest.mark.gpu

MOMENTS = 2 * LAYERS * WIDTH * WIDTH * 4


@pytest.fixture(scope="module")
def steps(arch: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A training step with its moments on the device (`none`) and on the host (`all`)."""
    folder = tmp_path_factory.mktemp("states")
    made = {}
    for states in ("none", "all"):
        made[states] = folder / f"{states}.memc"
        how = memc.BuildGradient(loss="mse", optimizer="adam")
        options = {"target": "cuda", "arch": arch, "kernels": "generated", "offload_states": states}
        report = memc.compile(network(), made[states], train=how, **options).report
        assert (0 if report.states is None else report.states.bytes) == (MOMENTS if states == "all" else 0)
    return made


@WAYS
def test_bits_are_those_of_resident_states(
    steps: dict[str, Path], monkeypatch: pytest.MonkeyPatch, cuda_graph: bool
) -> None:
    wanted = taken(load(steps["none"], cuda_graph=cuda_graph), 20)
    for times in TIMES:
        monkeypatch.setenv("MEMC_COPIES", times)
        step = load(steps["all"], cuda_graph=cuda_graph)
        assert step.statistics()["host"] >= MOMENTS
        same(taken(step, 20), wanted)


@WAYS
def test_states_are_saved_and_restored(steps: dict[str, Path], tmp_path: Path, cuda_graph: bool) -> None:
    for first, second in (("none", "all"), ("all", "none"), ("all", "all")):
        given, other = (load(steps[states], cuda_graph=cuda_graph) for states in (first, second))
        taken(given, 3)
        given.save(tmp_path / "state.safetensors")
        other.restore(tmp_path / "state.safetensors")
        same(taken(other, 4), taken(given, 4))


@WAYS
def test_sessions_have_slabs_of_their_own(steps: dict[str, Path], cuda_graph: bool) -> None:
    wanted = taken(load(steps["none"], cuda_graph=cuda_graph), 6)
    first = load(steps["all"], cuda_graph=cuda_graph)
    sessions = [first.session() for _ in range(3)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda step: taken(step, 6), [first, *sessions]))
    for each in found:
        same(each, wanted)
    sessions.pop()
    same(taken(first.session(), 3), taken(sessions[0], 3))

# SPDX-License-Identifier: Apache-2.0
"""Measured links: of a link whose rates are known, in simulated time, and of this machine's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memc.ir.errors import UsageError
from memc.measure.link import LinkTimes
from memc.passes.measured_times import require_sound
from memc.runtime.cuda import pinned_copies
from memc.runtime.execute import copy_times
from memc.runtime.execute.copy_times import SIZES, WAYS, Way


class KnownLink:
    """Copies in simulated time."""

    def __init__(self, alone: dict[Way, float], shared: dict[Way, float], latency: float) -> None:
        self.alone, self.shared, self.latency = alone, shared, latency
        self.now = 0.0
        self.queues: dict[Way, list[float]] = {way: [] for way in WAYS}

    def clock(self) -> float:
        return self.now

    def begin(self, way: Way, nbytes: int) -> None:
        self.queues[way].append(nbytes + self.latency * self.alone[way])

    def finish(self, way: Way) -> None:
        while self.queues[way]:
            busy = [each for each in WAYS if self.queues[each]]
            rates = self.shared if len(busy) == 2 else self.alone
            step = min(self.queues[each][0] / rates[each] for each in busy)
            self.now += step
            for each in busy:
                self.queues[each][0] -= step * rates[each]
                if self.queues[each][0] < 1e-6:
                    self.queues[each].pop(0)


def test_rates_of_a_known_link(monkeypatch: pytest.MonkeyPatch) -> None:
    link = KnownLink({"out": 50e9, "in": 40e9}, {"out": 45e9, "in": 20e9}, 8e-6)
    monkeypatch.setattr(copy_times.time, "perf_counter", link.clock)
    found = LinkTimes.of(copy_times.measured(link), "cuda")
    assert found.out.bandwidth == pytest.approx(50e9, rel=0.01) and found.back.bandwidth == pytest.approx(
        40e9, rel=0.01
    )
    assert found.out.shared == pytest.approx(45e9, rel=0.01) and found.back.shared == pytest.approx(20e9, rel=0.01)
    assert found.out.latency == pytest.approx(8e-6, rel=0.01) and found.back.latency == pytest.approx(8e-6, rel=0.01)
    assert [size["bytes"] for size in found.sizes] == list(SIZES)
    assert found.sizes[1]["in"] == pytest.approx(8e-6 + 2**20 / 40e9)


def test_this_machines_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_times, "SIZES", (2**16, 2**22))
    monkeypatch.setattr(copy_times, "MEASURED_BYTES", 2**24)
    found = LinkTimes.of(copy_times.copy_times("llvm"), "llvm")
    for rates in (found.out, found.back):
        require_sound("here", rates)
        assert 1e8 < rates.shared <= rates.bandwidth < 1e12
    monkeypatch.setenv("MEMC_COPIES", "at-done")
    with pytest.raises(UsageError, match="MEMC_COPIES: expected none while the link is measured"):
        copy_times.copy_times("llvm")


def test_the_lanes_copy_what_is_timed() -> None:
    with copy_times.lanes_of_cpu(SIZES[-1]) as lanes:
        for way in WAYS:
            lanes.begin(way, 2**20)
            lanes.begin(way, 2**20)
            lanes.finish(way)
            source, destination = lanes.arrays[way]  # type: ignore[attr-defined]
            assert np.count_nonzero(destination) == 2**21 and source.all()


class Runtime:
    """A CUDA runtime that notes calls, and refuses one."""

    def __init__(self, refused: str = "") -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.refused = refused
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuda"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append((name, tuple(getattr(each, "value", each) for each in arguments)))
            if name in ("cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithFlags") and name != self.refused:
                self.made += 1
                arguments[0]._obj.value = self.made
            return 2 if name == self.refused else 0

        return call

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for each, arguments in self.calls if each == name]


def test_pinned_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    monkeypatch.setattr(pinned_copies.cuda_runtime, "_loaded", [runtime])
    monkeypatch.setattr(pinned_copies.cuda_runtime, "load", lambda: None)
    with pinned_copies.pinned_copies(0, 4096) as copies:
        for way in WAYS:
            copies.begin(way, 1024)
            copies.finish(way)
    (host_out, device_out, out), (host_in, device_in, back) = (1, 2, 3), (4, 5, 6)
    assert runtime.named("cudaMemcpyAsync") == [
        (host_out, device_out, 1024, 2, out),
        (device_in, host_in, 1024, 1, back),
    ]
    assert runtime.named("cudaStreamSynchronize") == [(out,), (back,)]
    assert [arguments[1:] for arguments in runtime.named("cudaHostAlloc")] == [(4096, 0)] * 2
    freed = {name: sorted(runtime.named(name)) for name in ("cudaFreeHost", "cudaFree", "cudaStreamDestroy")}
    assert freed == {
        "cudaFreeHost": [(host_out,), (host_in,)],
        "cudaFree": [(device_out,), (device_in,)],
        "cudaStreamDestroy": [(out,), (back,)],
    }


class ErrorString:
    restype: Any = None

    def __call__(self, code: Any) -> bytes:
        return b"out of memory"


def test_pinned_memory_that_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(refused="cudaMalloc")
    monkeypatch.setattr(pinned_copies, "_library", lambda: runtime)
    runtime.__dict__["cudaGetErrorString"] = ErrorString()
    with pytest.raises(RuntimeError, match=r"^CUDA: cudaMalloc: out of memory \(error 2\)$"):
        pinned_copies.PinnedCopies(4096)
    assert runtime.named("cudaFreeHost") == [(1,)] and not runtime.named("cudaFree")

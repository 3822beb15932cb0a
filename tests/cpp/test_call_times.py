# SPDX-License-Identifier: Apache-2.0
"""The instrument that takes the time of each kernel call: on the host, and by events of a fake CUDA driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm_ffi

from memc import native


def call(instrument: Callable[..., Any], symbol: str, work: Callable[[], Any] = lambda: None) -> None:
    """What the virtual machine does around a call."""
    instrument(None, symbol, True, None)
    work()
    instrument(None, symbol, False, None)


def rows(times: Callable[[], Any]) -> list[tuple[str, float, float]]:
    found = list(times())
    return [(str(found[i]), found[i + 1], found[i + 2]) for i in range(0, len(found), 3)]


def test_host_times_follow_each_other() -> None:
    native.load()
    instrument, times = tvm_ffi.get_global_func("memc.profile.recorder")(-1)
    assert rows(times) == []
    call(instrument, "first")
    call(instrument, "vm.builtin.alloc_tensor")
    call(instrument, "runtime.TVMTensorCreateView")
    call(instrument, "second", lambda: sum(range(10_000)))
    call(instrument, "first")
    found = rows(times)
    assert [symbol for symbol, _, _ in found] == ["first", "second", "first"]
    moments = [moment for _, begin, end in found for moment in (begin, end)]
    assert moments[0] == 0 and moments == sorted(moments) and moments[2] < moments[3]


def test_a_call_that_fails_leaves_no_time() -> None:
    """Only calls that came back are given."""
    native.load()
    instrument, times = tvm_ffi.get_global_func("memc.profile.recorder")(-1)
    call(instrument, "done")
    instrument(None, "broken", True, None)
    assert [symbol for symbol, _, _ in rows(times)] == ["done"]


@pytest.mark.parametrize("captured", [False, True])
def test_events_on_a_device(kernels: None, captured: bool) -> None:
    """In a capture the events belong to the graph; the fake driver refuses the other kind."""
    instrument, times = tvm_ffi.get_global_func("memc.profile.recorder")(0)

    def run() -> None:
        call(instrument, "conv")
        call(instrument, "vm.builtin.alloc_tensor")
        call(instrument, "relu")

    if captured:
        launch = tvm_ffi.get_global_func("memc.cuda.capture")(0, run)
        launch()
        launch()
    else:
        run()
    found = rows(times)
    assert [symbol for symbol, _, _ in found] == ["conv", "relu"]
    assert all(begin < end for _, begin, end in found)


def test_a_driver_that_fails_is_named(kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    instrument, _ = tvm_ffi.get_global_func("memc.profile.recorder")(0)
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cuEventRecordWithFlags")
    with pytest.raises(RuntimeError, match="cuEventRecordWithFlags: FAKE_CUDA_ERROR"):
        instrument(None, "conv", True, None)

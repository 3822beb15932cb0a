# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: copies between it and pinned memory, one by one. Skips itself elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from memc import native
from memc.runtime.cuda import cuda_runtime
from memc.runtime.cuda.host_slab import SlabRuns
from memc.runtime.execute.tensors import array_over

pytestmark = pytest.mark.gpu

TIMES = ("thread", "at-start", "at-done", "random:1", "random:2")


@pytest.fixture
def slab(arch: str) -> Any:
    load_native()
    return call("open", 0, (1 << 28) + 1, 2, 2)


def load_native() -> None:
    cuda_runtime.load()
    native.load()
    tvm.cuda(0).sync()


def call(name: str, *arguments: Any) -> Any:
    return tvm_ffi.get_global_func(f"memc.copy.cuda.{name}")(*arguments)


def on_device(array: np.ndarray) -> Any:
    return tvm.runtime.tensor(array, tvm.cuda(0))


@pytest.mark.parametrize("size", [1, 3, 255, 4097, (1 << 28) + 1])
def test_sizes(slab: Any, size: int) -> None:
    source = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    there, back = on_device(source), on_device(np.zeros(size, np.uint8))
    call("start", slab, there, 0, 1, 0, 0)
    call("done", slab, 0)
    call("start", slab, back, 0, 0, 1, 1)
    call("done", slab, 1)
    np.testing.assert_array_equal(back.numpy(), source)
    np.testing.assert_array_equal(array_over(call("bytes", slab), "u8")[:size], source)


@pytest.mark.parametrize("captured", [False, True])
def test_after_an_error_no_copy_is_under_way(slab: Any, captured: bool) -> None:
    size = 1 << 28
    source = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    there = on_device(source)
    memory = array_over(call("bytes", slab), "u8")

    def main() -> None:
        call("start", slab, there, 0, 1, 0, 0)
        raise RuntimeError("in the middle")

    guarded = SlabRuns(slab).guarded(main)
    with pytest.raises(RuntimeError, match="in the middle"):
        if captured:
            tvm_ffi.get_global_func("memc.cuda.capture")(0, guarded)
        else:
            guarded()
    assert np.array_equal(memory[:size], source) == (not captured)
    call("start", slab, there, 0, 1, 0, 0)  # The lanes are in no capture any more.
    call("done", slab, 0)
    tvm.cuda(0).sync()
    np.testing.assert_array_equal(memory[:size], source)


@pytest.mark.parametrize("times", TIMES)
def test_a_captured_copy_is_replayed(slab: Any, monkeypatch: pytest.MonkeyPatch, times: str) -> None:
    monkeypatch.setenv("MEMC_COPIES", times)
    there, back = on_device(np.zeros(4097, np.uint8)), on_device(np.zeros(4097, np.uint8))

    def main() -> None:
        call("start", slab, there, 256, 1, 0, 0)
        call("start", slab, there, 8192, 1, 0, 1)
        call("done", slab, 1)
        call("done", slab, 0)
        call("start", slab, back, 8192, 0, 1, 0)
        call("done", slab, 0)

    launch = tvm_ffi.get_global_func("memc.cuda.capture")(0, main)
    for n in range(5):
        there.copyfrom(np.full(4097, n + 1, np.uint8))
        launch()
        assert set(back.numpy()) == {n + 1}

# SPDX-License-Identifier: Apache-2.0
"""Slabs that cannot be made, and copies that the driver refuses or that are none."""

from __future__ import annotations

from typing import Any

import pytest
from copy_driver import BYTES, ONE, Driver, call, tensor

from memc.runtime.execute.tensors import array_over


def test_memory_that_cannot_be_registered_is_the_drivers(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cuMemHostRegister_v2")
    before = driver.count("fake_pinned")
    slab = call("open", 0, 5000, 1, 1)
    assert driver.count("fake_pinned") == before + 8192
    call("start", slab, tensor(ONE), 4900, 1, 0, 0)
    assert array_over(call("bytes", slab), "u8")[4900:].tolist() == list(range(100))
    del slab
    assert driver.count("fake_pinned") == before


@pytest.mark.parametrize("failure", ["cuMemHost", "cuStreamCreate", "cuEventCreate"])
def test_a_slab_that_cannot_be_made_leaves_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    call("open", 0, 1, 1, 1)  # Makes what lives as long as the process.
    before = [driver.library.fake_objects(), driver.count("fake_pinned"), driver.count("fake_streams")]
    monkeypatch.setenv("FAKE_CUDA_FAILS", failure)
    expected = "cannot pin 5000 bytes of the host's memory: cuMemHostRegister: FAKE_CUDA_ERROR, cuMemHostAlloc: FAKE_CUDA_ERROR"
    with pytest.raises(RuntimeError, match=expected if failure == "cuMemHost" else failure):
        call("open", 0, 5000, 2, 7)
    assert [driver.library.fake_objects(), driver.count("fake_pinned"), driver.count("fake_streams")] == before


def test_memory_that_there_is_not(driver: Driver) -> None:
    asked = 1 << 50
    with pytest.raises(RuntimeError, match=rf"cannot pin {asked} bytes of the host's memory: \d+ bytes of it are free"):
        call("open", 0, asked, 2, 7)
    assert 0 < call("free") < asked


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((BYTES - 99, 1, 0, 0), f"expected bytes within the slab of {BYTES}"),
        ((BYTES + 1, 1, 0, 0), f"expected bytes within the slab of {BYTES}"),
        ((0, 1, 2, 0), "expected a lane and a slot"),
        ((0, 1, 0, 3), "expected a lane and a slot"),
        ((-1, 1, 0, 0), "offset: expected at least 0"),
    ],
)
def test_copies_that_are_none(slab: Any, driver: Driver, arguments: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call("start", slab, tensor(ONE), *arguments)
    assert driver.lines() == []


def test_errors_of_the_driver_name_the_function(slab: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAILS", "cuMemcpyHtoDAsync_v2")
    with pytest.raises(RuntimeError, match="memc.copy.cuda.start: cuMemcpyHtoDAsync: FAKE_CUDA_ERROR"):
        call("start", slab, tensor(ONE.copy()), 0, 0, 0, 0)

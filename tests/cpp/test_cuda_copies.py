# SPDX-License-Identifier: Apache-2.0
"""Copies beside the kernels of a CUDA device, over a driver that copies at once and writes down what it is asked for."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from copy_driver import BYTES, ONE, Driver, call, tensor
from tvm import relax

from memc.runtime.cuda.host_slab import SlabRuns
from memc.runtime.execute.tensors import array_over


def test_bytes_go_out_and_back(slab: Any, driver: Driver) -> None:
    rng = np.random.default_rng(0)
    memory = array_over(call("bytes", slab), "u8")
    assert memory.shape == (BYTES,)
    nan = np.array([np.nan, -0.0, 1], np.float32)
    nan.view(np.uint32)[0] |= 0x1234
    for array in (nan, rng.integers(0, 256, 1, np.uint8), rng.normal(size=777).astype(np.float16), rng.random(9) < 0.5):
        back = np.zeros_like(array)
        call("start", slab, tensor(array), 256, 1, 0, 0)
        call("done", slab, 0)
        call("start", slab, tensor(back), 256, 0, 1, 2)
        call("done", slab, 2)
        assert back.tobytes() == array.tobytes() == memory[256 : 256 + array.nbytes].tobytes()


def test_copies_and_kernels_wait_for_each_other(slab: Any, driver: Driver) -> None:
    call("start", slab, tensor(ONE), 0, 1, 0, 0)
    call("start", slab, tensor(ONE), 128, 1, 0, 1)
    call("start", slab, tensor(ONE.copy()), 512, 0, 1, 2)
    call("done", slab, 1)
    call("done", slab, 0)  # Earlier in its lane than what the kernels wait for.
    call("done", slab, 2)
    assert driver.lines() == [
        "record e0 k", "wait s0 e0", "out s0 100", "record e1 s0",
        "record e0 k", "wait s0 e0", "out s0 100", "record e2 s0",
        "record e3 k", "wait s1 e3", "in s1 100", "record e4 s1",
        "wait k e2", "wait k e4",
    ]  # fmt: skip


def test_a_lane_that_has_waited_for_the_kernels_does_not_again(slab: Any, driver: Driver) -> None:
    call("start", slab, tensor(ONE), 0, 1, 0, 0)
    call("start", slab, tensor(ONE), 128, 1 + 2, 0, 1)
    call("done", slab, 1)
    call("start", slab, tensor(ONE.copy()), 128, 0, 1, 2)
    call("start", slab, tensor(ONE.copy()), 0, 0 + 2, 1, 0)
    call("done", slab, 0)
    assert driver.lines() == [
        "record e0 k", "wait s0 e0", "out s0 100", "record e1 s0", "out s0 100", "record e2 s0", "wait k e2",
        "record e3 k", "wait s1 e3", "in s1 100", "record e4 s1", "in s1 100", "record e1 s1", "wait k e1",
    ]  # fmt: skip


@pytest.mark.parametrize("times", ["at-start", "at-done", "random:1", "random:2", "random:3"])
def test_at_other_times_every_copy_waits_for_the_kernels(
    slab: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, times: str
) -> None:
    monkeypatch.setenv("MEMC_COPIES", times)
    call("start", slab, tensor(ONE), 0, 1, 0, 0)
    call("start", slab, tensor(ONE), 128, 1 + 2, 0, 1)
    driver.library.cuStreamSynchronize(None)  # In the place of a kernel.
    call("done", slab, 1)
    lines = [line.split()[0] for line in driver.lines() if not line.startswith("record")]
    if times == "at-start":
        assert lines == ["wait", "out", "wait", "wait", "out", "wait", "synchronize"]
    if times == "at-done":
        assert lines == ["synchronize", "wait", "out", "wait", "out", "wait"]
    last = max(n for n, line in enumerate(lines) if line == "out")
    assert lines[last - 1] == "wait" or "synchronize" not in lines[:last]


def test_copies_of_no_bytes_wait_for_nothing(slab: Any, driver: Driver) -> None:
    call("start", slab, tensor(np.zeros(0, np.float32)), BYTES, 1, 0, 0)
    call("done", slab, 0)
    assert driver.lines() == []


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("at-start", ["record e0 k", "wait s0 e0", "out s0 100", "record e1 s0", "wait k e1", "kernel"]),
        ("at-done", ["kernel", "record e0 k", "wait s0 e0", "out s0 100", "record e1 s0", "wait k e1"]),
        ("thread", ["record e0 k", "wait s0 e0", "out s0 100", "record e1 s0", "kernel", "wait k e1"]),
    ],
)
def test_times(slab: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, times: str, expected: list[str]) -> None:
    monkeypatch.setenv("MEMC_COPIES", times)
    call("start", slab, tensor(ONE), 0, 1, 0, 0)
    before = len(driver.library.fake_log().splitlines())
    call("done", slab, 0)
    lines = driver.lines()
    assert [*lines[:before], "kernel", *lines[before:]] == expected


@pytest.mark.parametrize("seed", range(8))
def test_random_times_keep_the_sequence_of_a_lane(
    slab: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("MEMC_COPIES", f"random:{seed}")
    arrays = [np.full(n, n, np.uint8) for n in (1, 2, 3)]
    for slot, array in enumerate(arrays):
        call("start", slab, tensor(array), 0, 1, 0, slot)
    for slot in (2, 0, 1):
        call("done", slab, slot)
    lines = driver.lines()
    assert [line for line in lines if line.startswith("out")] == ["out s0 1", "out s0 2", "out s0 3"]
    last = next(n for n, line in enumerate(lines) if line == "out s0 3")
    assert any(line.startswith("wait k") for line in lines[last:])
    assert array_over(call("bytes", slab), "u8")[:3].tolist() == [3, 3, 3]


def test_the_first_run_has_no_kernel_beside_a_copy(slab: Any, driver: Driver) -> None:
    def main(*tensors: Any) -> None:
        call("start", slab, *tensors, 0, 1, 0, 0)
        driver.library.cuStreamSynchronize(None)  # In the place of a kernel.
        call("done", slab, 0)

    runs = SlabRuns(slab)
    run = runs.ordered(lambda tensors: runs.guarded(main)(*tensors))
    copy = ["record e0 k", "wait s0 e0", "out s0 100", "record e1 s0"]
    run([tensor(ONE)])
    assert driver.lines() == [*copy, "wait k e1", "synchronize k", "record e2 k"]
    for _ in range(2):
        run([tensor(ONE)])
        assert driver.lines() == [*copy, "synchronize k", "wait k e1", "record e2 k"]


def test_a_first_run_that_fails_is_followed_by_a_first_run(slab: Any, driver: Driver) -> None:
    fails = [True]

    def main() -> None:
        call("start", slab, tensor(ONE), 0, 1, 0, 0)
        if fails.pop() if fails else False:
            raise RuntimeError("in the middle")
        call("done", slab, 0)

    runs = SlabRuns(slab)
    run = runs.ordered(lambda tensors: runs.guarded(main)())
    with pytest.raises(RuntimeError, match="in the middle"):
        run([])
    assert driver.lines()[-3:] == ["synchronize s0", "synchronize s1", "synchronize k"]
    run([])
    assert "wait k e1" in driver.lines()


def test_an_error_leaves_no_copy_to_itself(slab: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMC_COPIES", "at-done")

    def main() -> None:
        call("start", slab, tensor(ONE), 0, 1, 0, 0)
        monkeypatch.setenv("MEMC_COPIES", "thread")
        call("start", slab, tensor(ONE), 0, 1, 1, 1)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        SlabRuns(slab).guarded(main)()
    lines = driver.lines()
    assert lines[4:] == ["synchronize s1", "synchronize s0", "synchronize k"] or lines[4:] == [
        "synchronize s0", "synchronize s1", "synchronize k",
    ]  # fmt: skip
    call("done", slab, 0)  # What waited is forgotten.
    call("done", slab, 1)
    assert driver.lines() == []


def test_lanes_join_a_capture(slab: Any, driver: Driver) -> None:
    def main() -> None:
        call("start", slab, tensor(ONE), 0, 1, 0, 0)
        call("done", slab, 0)

    tvm_ffi.get_global_func("memc.cuda.capture")(0, main)
    lines = driver.lines()
    assert [re.sub(r"\d+", "", line) for line in lines] == [
        "begin", "record e s", "wait s e", "out s ", "record e s", "wait s e", "end",
    ]  # fmt: skip
    (origin,) = {line.split()[2] for line in lines if line.startswith("record e0")}
    assert lines[5] == f"wait {origin} e1"


def test_an_error_in_a_capture_joins_the_lanes(slab: Any, driver: Driver) -> None:
    def main() -> None:
        call("start", slab, tensor(ONE), 0, 1, 0, 0)
        raise RuntimeError("in the middle")

    guarded: Callable[..., Any] = SlabRuns(slab).guarded(main)
    with pytest.raises(RuntimeError, match="in the middle"):
        tvm_ffi.get_global_func("memc.cuda.capture")(0, guarded)
    lines = driver.lines()
    assert not any(line.startswith("synchronize") for line in lines) and lines[-1] == "end"
    origin = lines[1].split()[2]
    assert sum(line.startswith(f"wait {origin}") for line in lines) == 2  # The fake's lanes are both captured.


@pytest.mark.parametrize("recorded", [False, True])
def test_nothing_is_left_of_a_slab(driver: Driver, recorded: bool) -> None:
    names = ("fake_pinned", "fake_streams")
    before = [driver.library.fake_objects(), *map(driver.count, names)]
    slab = call("open", 0, 5000, 2, 7)
    assert [driver.library.fake_objects(), *map(driver.count, names)] == [
        before[0] + 10,
        before[1] + 8192,
        before[2] + 2,
    ]
    view = array_over(call("bytes", slab), "u8")
    call("start", slab, tensor(ONE), 0, 1, 0, 0)
    SlabRuns(slab).ordered(lambda tensors: None)([])
    if recorded:
        assert SlabRuns(slab).lent(lambda n: n + 1)(3) == 4
    del slab
    assert driver.count("fake_pinned") == before[1] + 8192 and view[:100].tolist() == list(range(100))
    driver.lines()
    del view
    assert driver.lines() == [
        "await e0",
        "synchronize s0",
        "synchronize s1",
        *(["synchronize-all"] if recorded else []),
    ]
    assert [driver.library.fake_objects(), *map(driver.count, names)] == before


def test_a_thread_without_a_context_gets_the_devices(slab: Any, driver: Driver) -> None:
    driver.library.fake_without_context()
    current = ctypes.c_void_p()
    call("start", slab, tensor(ONE), 0, 1, 0, 0)
    driver.library.cuCtxGetCurrent(ctypes.byref(current))
    assert current.value
    call("done", slab, 0)


def test_a_program_of_the_virtual_machine(driver: Driver) -> None:
    b = relax.ExecBuilder()
    number = b.convert_constant
    with b.function("space.host", 0, []):
        b.emit_call("memc.copy.cuda.open", [number(n) for n in (0, BYTES, 2, 1)], dst=b.r(0))
        b.emit_ret(b.r(0))
    with b.function("bytes.host", 1, ["storage"]):
        b.emit_call("memc.copy.cuda.bytes", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("main", 3, ["host", "x", "y"]):
        for tensor_register, out in ((1, 1), (2, 0)):
            given = [b.r(0), b.r(tensor_register), *map(number, (512, out, 1 - out, 0))]
            b.emit_call("memc.copy.cuda.start", given)
            b.emit_call("memc.copy.cuda.done", [b.r(0), number(0)])
        b.emit_ret(b.void_arg())
    machine = relax.VirtualMachine(b.get(), tvm.cpu())
    slab, back = machine["space.host"](), np.zeros(100, np.uint8)
    machine["main"](slab, tensor(ONE), tensor(back))
    assert back.tolist() == list(range(100))
    assert array_over(machine["bytes.host"](slab), "u8")[512:612].tolist() == list(range(100))
    before = driver.count("fake_pinned")
    del slab, machine
    assert driver.count("fake_pinned") == before - BYTES

# SPDX-License-Identifier: Apache-2.0
"""After the first run nothing is allocated: counted, not timed. benchmarks/steady_state.py does the same over 10,000 runs."""

from __future__ import annotations

import ctypes
import gc
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memc.ir.module import Module
from memc.runtime.execute.executable import Executable
from memc.runtime.execute.load import load

Write = Callable[..., Path]
X = np.random.default_rng(5).normal(size=(4, 8)).astype(np.float32)


def calls(executable: Executable, x: np.ndarray) -> list[tuple[str, list[int]]]:
    """What the program calls in a run: name, and address of each tensor among the arguments."""
    virtual_machine = executable.loaded.virtual_machine()
    found: list[tuple[str, list[int]]] = []

    def note(_: Any, symbol: str, before: bool, __: Any, *arguments: Any) -> int:
        if before:
            found.append((symbol, [a.data_ptr() for a in arguments if hasattr(a, "data_ptr")]))
        return 0

    virtual_machine.set_instrument(note)
    given = executable.placed_inputs({"x": x})
    tensors = [executable.placing.tensor(spec, given[spec.name]) for spec in executable.inputs]
    made = [executable.buffer(n)[1] for n in range(len(executable.outputs))]
    virtual_machine["main"](*executable.storages.values(), *tensors, *made)
    outside = {tensor.data_ptr() for tensor in (*tensors, *made)}
    return [(symbol, [a for a in addresses if a not in outside]) for symbol, addresses in found]


@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_runs_allocate_no_tensors_and_move_none(network: Module, plan: Callable, write: Write, kernels: str) -> None:
    executable = load(write(plan(network, kernels=kernels)))
    first, second = calls(executable, X), calls(executable, X + 1)
    assert first == second
    symbols = [symbol for symbol, _ in first]
    assert "vm.builtin.alloc_tensor" in symbols  # A tensor's description, over memory that is there.
    assert not [symbol for symbol in symbols if "alloc_storage" in symbol]
    arena = {address for _, addresses in first for address in addresses}
    assert arena


class Mallinfo(ctypes.Structure):
    """glibc's mallinfo2: bytes in use from its heaps, and from mappings of their own."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


LIBC = ctypes.CDLL(None)
"""Opened once: each opening makes classes, which only the garbage collector would free."""


def allocated() -> int:
    """Bytes that malloc has given out."""
    found = LIBC.mallinfo2()
    return int(found.uordblks + found.hblkhd)


needs_mallinfo = pytest.mark.skipif(not hasattr(LIBC, "mallinfo2"), reason="needs glibc 2.33 or newer")
if hasattr(LIBC, "mallinfo2"):
    LIBC.mallinfo2.restype = Mallinfo

RUNS, BATCHES = 100, 9

LEAST_CHUNK = 32
"""Bytes: the least that glibc gives out, so that what each run keeps is at least a slope of this."""


def growth(work: Callable[[], object]) -> float:
    """Bytes that malloc has given out more after each call of `work`: the median of batches, which steps do not move, such as
    those of an interpreter's own pools or of a test runner's threads."""
    gc.collect()
    gc.disable()
    try:
        seen = []
        for _ in range(BATCHES + 1):  # Counting begins after the first.
            for _ in range(RUNS):
                work()
            seen.append(allocated())
    finally:
        gc.enable()
    return statistics.median(after - before for before, after in zip(seen, seen[1:])) / RUNS


@needs_mallinfo
@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_the_heap_does_not_grow_with_runs(network: Module, plan: Callable, write: Write, kernels: str) -> None:
    executable = load(write(plan(network, kernels=kernels)))
    assert abs(growth(lambda: executable(X))) < LEAST_CHUNK / 4


@needs_mallinfo
def test_growth_sees_what_every_run_keeps_and_no_single_step() -> None:
    malloc = LIBC.malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    assert LEAST_CHUNK <= growth(lambda: malloc(16)) < 2 * LEAST_CHUNK
    steps = iter(range(RUNS * (BATCHES + 1)))

    def once() -> None:
        if next(steps) == RUNS * 5 + 7:
            malloc(1 << 20)

    assert abs(growth(once)) < LEAST_CHUNK / 4

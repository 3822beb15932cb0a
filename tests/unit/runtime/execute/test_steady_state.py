# SPDX-License-Identifier: Apache-2.0
"""After the first run nothing is allocated: counted, not timed. benchmarks/steady_state.py does the same over 10,000 runs."""

from __future__ import annotations

import ctypes
import gc
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
    machine = executable.loaded.machine()
    found: list[tuple[str, list[int]]] = []

    def note(_: Any, symbol: str, before: bool, __: Any, *arguments: Any) -> int:
        if before:
            found.append((symbol, [a.data_ptr() for a in arguments if hasattr(a, "data_ptr")]))
        return 0

    machine.set_instrument(note)
    given = executable.placed_inputs({"x": x})
    tensors = [executable.tensor(spec, given[spec.name]) for spec in executable.inputs]
    made = [executable.buffer(n)[1] for n in range(len(executable.outputs))]
    machine["main"](executable.arena, executable.weights, *tensors, *made)
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


def allocated() -> tuple[int, int]:
    query = ctypes.CDLL(None).mallinfo2
    query.restype = Mallinfo
    found = query()
    return found.uordblks, found.hblkhd


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33 or newer")
@pytest.mark.parametrize("kernels", ["auto", "generated"])
def test_the_heap_is_the_same_after_every_run(network: Module, plan: Callable, write: Write, kernels: str) -> None:
    """Exactly: bytes that malloc has given out. Were anything kept, no two in a row would be the same; all five need not be,
    as a test runner's own threads may allocate, too."""
    executable = load(write(plan(network, kernels=kernels)))

    def work(runs: int) -> tuple[int, int]:
        for _ in range(runs):
            executable(X)
        return allocated()

    gc.collect()
    gc.disable()
    try:
        work(50)
        seen = [work(100) for _ in range(5)]
    finally:
        gc.enable()
    assert any(before == after for before, after in zip(seen, seen[1:]))

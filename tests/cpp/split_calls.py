# SPDX-License-Identifier: Apache-2.0
"""Calls of the CUDA libraries' kernels that take a given one of memc's own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from library_groups import Array, Step, make_op

from memc.ir.core import Op
from memc.ir.evaluate import run_op
from memc.passes.kernels.select_kernels import library_kernel

SPLITS = (1, 2, 4, 8)
WAYS = [(tile, SPLITS[(tile + more) % 4]) for tile in range(6) for more in (0, 2)]
"""Every tile with two numbers of parts."""

_bytes = count(1001)


def new_workspace() -> int:
    """Bytes that no call had before: one with them is a call site of its own."""
    return next(_bytes)


def call(op: Op, tensors: Sequence[Any], result: Any, scratch: Any) -> None:
    """Call the kernel of an op."""
    kernel = library_kernel(op, "cuda")
    assert kernel is not None
    given = map(tvm_ffi.from_dlpack, [*tensors, result, scratch])
    tvm_ffi.get_global_func(kernel.symbol)(*given, *kernel.scalars(op))


def choose(
    call_with: Callable[[int], None], tile: int, splits: int, kind: int = 2, own: int | None = None, tables: int = 0
) -> int:
    """Have a call site that was not called yet take the kernel with this tile, of those that word 8 of a choice calls `kind`;
    its bytes of workspace, `own` if given. `call_with` makes the call with so many; `tables`: of sums, where there are any."""
    known, own = new_workspace(), own or new_workspace()
    before = choices()
    call_with(known)
    (line,) = choices() - before
    key = line.split()[:32]
    key[key.index(str(known))] = str(own)
    tvm_ffi.get_global_func("memc.cuda.remember")(
        0, " ".join(map(str, [*key, tile, splits, tables, *[0] * 5, kind, 0]))
    )
    return own


def choices() -> set[str]:
    """What the call sites have chosen so far."""
    return set(tvm_ffi.get_global_func("memc.cuda.choices")(0).splitlines())


def assert_near(result: Array, expected: Array) -> None:
    """Within what sums of f32 lose."""
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * max(np.abs(expected).max(), 1))


def check_way(
    fake: Path,
    arrays: Sequence[Array],
    *steps: Step,
    way: tuple[int, int],
    kind: int = 2,
    least: int = 0,
    launches: int = 1,
    in_place: int | None = None,
    tf32: bool = False,
    rounds: bool | None = None,
    tables: int = 0,
) -> None:
    """A call by one of memc's own kernels against the ops' numpy references, the same bits at each call. `way` and `kind`: as
    `choose` has them; `least`: the bytes of workspace that it needs; `launches`: of a call; `in_place`: the operand that the
    result takes over; `tf32`: whether factors, the first two operands, may be rounded to TF32, which the way does if it
    `rounds`; `tables`: of sums."""
    op = make_op(arrays, steps)
    wide = [a.astype(np.float64) for a in arrays]
    if tf32:
        op.plan = replace(op.plan, precision="tf32")
    if tf32 if rounds is None else rounds:
        wide[:2] = [rounded_to_tf32(a).astype(np.float64) for a in arrays[:2]]
    (expected,) = run_op(make_op(wide, steps), wide)

    def result_with(workspace: int) -> Array:
        given = [a.copy() for a in arrays]
        result = np.full(op.result.type.shape, np.nan, np.float32) if in_place is None else given[in_place]
        scratch = np.full(workspace // 4 + 8, np.nan, np.float32).view(np.uint8)
        begin = -scratch.ctypes.data % 16
        call(op, given, result, scratch[begin : begin + workspace])
        return result

    def call_with(workspace: int) -> None:
        result_with(workspace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_CUDA_FAILS", "cuLaunchKernelEx")
        workspace = choose(call_with, *way, kind, least + new_workspace(), tables)
    counter = launches_of(fake)
    before = counter.value
    first = result_with(workspace)
    assert_near(first, expected)
    assert counter.value == before + 2 * launches  # Tried once, and run.
    np.testing.assert_array_equal(result_with(workspace), first)
    assert counter.value == before + 3 * launches


def rounded_to_tf32(values: Array) -> Array:
    """The nearest numbers of 11 bits, those halfway away from zero."""
    bits = np.ascontiguousarray(values).view(np.uint32) + np.uint32(1 << 12)
    return np.asarray((bits & np.uint32(0xFFFFE000)).view(np.float32))


def launches_of(fake: Path) -> ctypes.c_int:
    """How often memc's kernels were launched."""
    return ctypes.c_int.in_dll(ctypes.CDLL(str(fake)), "launches")

# SPDX-License-Identifier: Apache-2.0
"""Calls of the CUDA libraries' kernels that take a given one of memc's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import tvm_ffi
from library_groups import Array

from memc.ir.core import Op
from memc.passes.select_kernels import library_kernel

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


def choose(call_with: Callable[[int], None], tile: int, splits: int, kind: int = 2, own: int | None = None) -> int:
    """Have a call site that was not called yet take the kernel with this tile, of those that word 8 of a choice calls `kind`;
    its bytes of workspace, `own` if given. `call_with` makes the call with so many."""
    known, own = new_workspace(), own or new_workspace()
    before = choices()
    call_with(known)
    (line,) = choices() - before
    key = line.split()[:32]
    key[key.index(str(known))] = str(own)
    tvm_ffi.get_global_func("memc.cuda.remember")(0, " ".join(map(str, [*key, tile, splits, *[0] * 6, kind, 0])))
    return own


def choices() -> set[str]:
    """What the call sites have chosen so far."""
    return set(tvm_ffi.get_global_func("memc.cuda.choices")(0).splitlines())


def assert_near(result: Array, expected: Array) -> None:
    """Within what sums of f32 lose."""
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * max(np.abs(expected).max(), 1))

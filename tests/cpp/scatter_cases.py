# SPDX-License-Identifier: Apache-2.0
"""Operands of scatters and of rows added up by index, calls of their kernels, and results one update after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tvm_ffi
from sort_scan_cases import DTYPES, GUARD, Array, numpy_type, random

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import LibraryKernel, definition
from memc.ir.types import DType, TensorType

REDUCTIONS = ("none", "add", "mul", "max", "min")
COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
ELEMENTS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((40,), (33,), 0),
    ((1,), (500,), 0),
    ((7, 40), (7, 90), 1),
    ((50, 3), (400, 3), 0),
    ((3, 5, 4), (2, 200, 3), 1),
    ((2, 3, 9, 2, 5), (1, 3, 70, 2, 4), 2),
    ((5, 60), (3, 64), 1),
    ((16, 300), (16, 40), 1),
]
"""Shapes of data and of updates, and an axis; other axes may be covered only in part."""
ROWS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((40,), (33,), 1),
    ((1, 7), (500,), 1),
    ((30, 40), (90,), 1),
    ((5, 3, 4), (8, 50), 2),
    ((3, 2, 2), (400,), 3),
    ((3000, 2), (64,), 1),
    ((9, 70), (5, 7, 2), 1),
]
"""Shapes of data, outer shapes of indices, and how many coordinates an update has."""
GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = [
    ((300,), (5, 12), 0, 50),
    ((70,), (64,), 0, 1000),
    ((6, 41), (3,), 1, 20),
    ((2, 3, 90), (7, 2), 2, 33),
    ((40,), (4,), 0, 100),
    ((500,), (), 0, 17),
]
"""Axes of g before and of the indices, the rest of g, how many axes the indices come after, and rows of the result."""


def make_op(name: str, arrays: Sequence[Array], **attrs: Any) -> Op:
    values = [Value(f"x{n}", TensorType(DType.from_numpy(a.dtype), a.shape)) for n, a in enumerate(arrays)]
    function = Function(list(values))
    return IRBuilder(Module([function]), function, function.ops).multi(name, values, **attrs)


def run(library: LibraryKernel, name: str, arrays: Sequence[Array], **attrs: Any) -> Array:
    """The kernel's result, with the least workspace."""
    op = make_op(name, arrays, **attrs)
    assert library.supports(op) and library in definition(op).library
    result = np.full(op.result.type.nbytes + GUARD, 0xA5, np.uint8)
    bytes = 0 if library.workspace is None else library.workspace(op)[0]
    scratch = np.full(bytes + GUARD, 0xA5, np.uint8)
    view = result[:-GUARD].view(op.result.type.dtype.numpy).reshape(op.result.type.shape)
    given = [np.ascontiguousarray(a) for a in (*arrays, view)]
    tensors = [tvm_ffi.from_dlpack(a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a) for a in given]
    if bytes:
        tensors.append(tvm_ffi.from_dlpack(scratch[:bytes]))
    tvm_ffi.get_global_func(library.symbol)(*tensors, *library.scalars(op))
    assert (result[-GUARD:] == 0xA5).all() and (scratch[-GUARD:] == 0xA5).all()
    return view


def random_indices(extents: Sequence[int] | int, shape: tuple[int, ...], kind: str, wide: bool, seed: int = 2) -> Array:
    """Negative ones too; of kind `few`, most updates go to few places."""
    rng = np.random.default_rng(seed)
    extents = np.asarray(extents)
    found = rng.integers(-extents, extents, shape)
    if kind == "few":
        found = np.where(rng.random(shape) < 0.9, np.minimum(extents - 1, 2), found)
    return found.astype(np.int64 if wide else np.int32)


def operands(dtype: str, data: tuple[int, ...], updates: tuple[int, ...], reduction: str) -> tuple[Array, Array]:
    if reduction == "mul" and numpy_type(dtype).kind not in "iu":
        rng = np.random.default_rng(4)
        one, other = (rng.choice([-1, 1], s) * rng.uniform(0.97, 1.03, s) for s in (data, updates))
        return one.astype(numpy_type(dtype)), other.astype(numpy_type(dtype))
    special = reduction in ("none", "max", "min")
    return tuple(random(dtype, s, True, seed, special) for seed, s in ((3, data), (5, updates)))  # type: ignore[return-value]


def combined(start: Array, places: Sequence[Array], updates: Array, reduction: str) -> Array:
    """One update after another; floats in f64, to be rounded by who compares."""
    is_float = start.dtype.kind not in "iub"
    result = start.astype(np.float64) if is_float else start.copy()
    updates = updates.astype(result.dtype)
    with np.errstate(all="ignore"):
        if reduction == "none":
            flat = np.ravel_multi_index(tuple(places), result.shape[: len(places)])
            last = {int(at): n for n, at in enumerate(flat)}
            rows = result.reshape(-1, *result.shape[len(places) :])
            for at, n in last.items():
                rows[at] = updates[n]
        else:
            COMBINE[reduction].at(result, tuple(places), updates)
    return result


def element_places(indices: Array, shape: tuple[int, ...], axis: int) -> list[Array]:
    found: list[Array] = list(np.indices(indices.shape))
    found[axis] = np.where(indices < 0, indices + shape[axis], indices)
    return [a.reshape(-1) for a in found]


def row_places(indices: Array, shape: tuple[int, ...]) -> list[Array]:
    flat = indices.reshape(-1, indices.shape[-1])
    return [np.where(flat[:, d] < 0, flat[:, d] + shape[d], flat[:, d]) for d in range(flat.shape[1])]


def assert_near(found: Array, wanted: Array, dtype: str, exact: bool = False) -> None:
    wide = found.astype(wanted.dtype)
    if exact or wanted.dtype != np.float64:
        np.testing.assert_array_equal(wide, wanted.astype(found.dtype).astype(wanted.dtype))
    else:
        precision = {"float64": 1e-12, "float32": 3e-5, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
        np.testing.assert_allclose(wide, wanted, rtol=precision, atol=precision)


def start_of(result: Array, reduction: str) -> Array:
    """What a reduction without data begins with."""
    type = result.dtype
    if reduction in ("add", "mul"):
        return np.full_like(result, int(reduction == "mul"))
    if type.kind in "iu":
        ends = np.iinfo(type)
        return np.full_like(result, ends.min if reduction == "max" else ends.max)
    return np.full_like(result, -np.inf if reduction == "max" else np.inf)


def check_elements(
    kernel: LibraryKernel, combine: LibraryKernel, case: int, dtype: str, reduction: str, kind: str
) -> None:
    shape, span, axis = ELEMENTS[case]
    data, updates = operands(dtype, shape, span, reduction)
    indices = random_indices(shape[axis], span, kind, case % 2 == 0)
    _check(
        kernel,
        combine,
        "scatter_elements",
        [data, indices, updates],
        element_places(indices, shape, axis),
        reduction,
        axis=axis,
    )


def check_rows(kernel: LibraryKernel, combine: LibraryKernel, case: int, dtype: str, reduction: str, kind: str) -> None:
    shape, outer, depth = ROWS[case]
    data, updates = operands(dtype, shape, (*outer, *shape[depth:]), reduction)
    indices = random_indices(shape[:depth], (*outer, depth), kind, case % 2 == 0)
    _check(kernel, combine, "scatter_nd", [data, indices, updates], row_places(indices, shape), reduction)


def _check(
    kernel: LibraryKernel,
    combine: LibraryKernel,
    name: str,
    arrays: list[Array],
    places: list[Array],
    reduction: str,
    **own: Any,
) -> None:
    """The op, and what stands for it in its expansion."""
    data, indices, updates = arrays
    dtype = "bfloat16" if data.dtype == ml_dtypes.bfloat16 else str(data.dtype)
    count = places[0].size
    rows = updates.reshape(count, *data.shape[len(places) :])
    exact = reduction in ("none", "max", "min")
    if kernel.supports(make_op(name, arrays, reduction=reduction, **own)):
        found = run(kernel, name, arrays, reduction=reduction, **own)
        assert_near(found, combined(data, places, rows, reduction), dtype, exact)
    attrs = {"reduction": reduction, "shape": data.shape, **own}
    found = run(combine, f"{name}_combine", [indices, updates], **attrs)
    if reduction == "none":
        wanted = combined(np.full(data.shape, -1), places, np.arange(rows.size).reshape(rows.shape), "none")
    else:
        wanted = combined(start_of(found, reduction), places, rows, reduction)
    assert_near(found, wanted, "float32" if dtype in ("float16", "bfloat16") else dtype, exact)


def check_gather_grad(kernel: LibraryKernel, case: int, dtype: str, kind: str) -> None:
    before, after, axis, extent = GATHERS[case]
    split = [before[:axis], before[axis:]]
    indices = random_indices(extent, split[1], kind, case % 2 == 0)
    g = random(dtype, (*before, *after), False, special=False)
    found = run(kernel, "gather_grad", [indices, g], axis=axis, extent=extent)
    rows = g.astype(np.float64).reshape(*split[0], indices.size, *after)
    wanted = np.zeros((*split[0], extent, *after))
    at = np.where(indices < 0, indices + extent, indices).reshape(-1)
    np.add.at(np.moveaxis(wanted, axis, 0), at, np.moveaxis(rows, axis, 0))
    scale = max(float(np.abs(rows).max()), 1.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-12 if dtype == "float64" else 1e-5, atol=1e-6 * scale)


__all__ = [
    "DTYPES",
    "ELEMENTS",
    "GATHERS",
    "REDUCTIONS",
    "ROWS",
    "check_elements",
    "check_gather_grad",
    "check_rows",
    "run",
]

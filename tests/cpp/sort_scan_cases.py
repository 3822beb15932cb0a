# SPDX-License-Identifier: Apache-2.0
"""Operands for what goes along lines, calls of its kernels, and numpy's results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tvm_ffi

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import LibraryKernel, definition
from memc.ir.types import DType, TensorType

Array = npt.NDArray[Any]
DTYPES = "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
GUARD = 64


def numpy_type(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def make_op(name: str, x: Array, **attrs: Any) -> Op:
    operand = Value("x", TensorType(DType.from_numpy(x.dtype), x.shape))
    function = Function([operand])
    return IRBuilder(Module([function]), function, function.ops).multi(name, [operand], **attrs)


def random(dtype: str, shape: tuple[int, ...], ties: bool, seed: int = 3, special: bool = True) -> Array:
    rng, type = np.random.default_rng(seed), numpy_type(dtype)
    if type.kind in "iu":
        low, high = (0, 5) if ties else (np.iinfo(type).min, np.iinfo(type).max)
        return rng.integers(low, high, shape, type, endpoint=True)
    x = rng.integers(-3, 4, shape) if ties else rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 5, shape)
    if special:
        values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
        x = np.where(rng.random(shape) < 0.2, values[rng.integers(0, len(values), shape)], x)
    return x.astype(type)


def random_factors(dtype: str, shape: tuple[int, ...]) -> Array:
    """Whose running products stay inside of a float's range; of integers, odd ones, which never become zero."""
    rng = np.random.default_rng(7)
    if dtype.startswith("float"):
        return (rng.uniform(0.99, 1.01, shape) * rng.choice([-1, 1], shape)).astype(dtype)
    return rng.integers(0, 120, shape).astype(dtype) | np.dtype(dtype).type(1)


def ranked(x: Array) -> Array:
    """Numbers in the order of the elements, equal ones equal; nan above all."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    _, found = np.unique(wide, return_inverse=True, equal_nan=True)
    return found.reshape(x.shape).astype(np.int64)


def expected_positions(x: Array, axis: int, largest: bool) -> Array:
    numbers = ranked(x)
    return np.argsort(-numbers if largest else numbers, axis=axis, kind="stable")


def expected_scan(name: str, x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Of floats in f64."""
    turned = np.flip(x, axis) if reverse else x
    wanted: Array = getattr(np, name)(turned, axis=axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    if exclusive:
        first = np.full_like(np.take(wanted, [0], axis), int(name == "cumprod"))
        wanted = np.concatenate([first, np.delete(wanted, -1, axis)], axis)
    return np.flip(wanted, axis) if reverse else wanted


def run(library: LibraryKernel, name: str, x: Array, room: int = 0, **attrs: Any) -> list[Array]:
    """The kernel's results, with the least workspace (room 0) or the most."""
    op = make_op(name, x, **attrs)
    assert library.supports(op) and library in definition(op).library
    results = [np.full(r.type.nbytes + GUARD, 0xA5, np.uint8) for r in op.results]
    bytes = 0 if library.workspace is None else library.workspace(op)[room]
    scratch = np.full(bytes + GUARD, 0xA5, np.uint8)
    arrays = [np.ascontiguousarray(x)] + [r[:-GUARD].view(v.type.dtype.numpy) for r, v in zip(results, op.results)]
    arrays[1:] = [a.reshape(v.type.shape) for a, v in zip(arrays[1:], op.results)]
    tensors = [tvm_ffi.from_dlpack(a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a) for a in arrays]
    if bytes:
        tensors.append(tvm_ffi.from_dlpack(scratch[:bytes]))
    tvm_ffi.get_global_func(library.symbol)(*tensors, *library.scalars(op))
    assert all((a[-GUARD:] == 0xA5).all() for a in (*results, scratch))
    return arrays[1:]


def check_top_k(library: LibraryKernel, x: Array, axis: int, k: int, largest: bool, room: int = 0) -> None:
    values, positions = run(library, "top_k", x, room, axis=axis, k=k, largest=largest)
    wanted = np.take(expected_positions(x, axis, largest), range(k), axis=axis)
    np.testing.assert_array_equal(positions, wanted)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    np.testing.assert_array_equal(values.view(bits), np.take_along_axis(x, wanted, axis).view(bits))


def boxes_of(count: int, center: bool, seed: int) -> Array:
    """Boxes that overlap many others, some of them odd: without area, with a negative side, infinite or nan."""
    rng = np.random.default_rng(seed)
    first, sides = rng.uniform(0, 4, (2, count, 2)), rng.uniform(0.5, 1.5, (2, count, 2))
    boxes = np.concatenate([first, sides] if center else [first, first + sides], axis=-1).astype(np.float32)
    odd = rng.random(boxes.shape) < 0.02
    boxes[odd] = rng.choice(np.array([np.nan, np.inf, -1, 0, 4], np.float32), odd.sum())
    flipped = rng.random((2, count)) < 0.3
    if not center:
        boxes[flipped] = boxes[flipped][:, [2, 1, 0, 3]]
    return boxes


def check_suppression(
    library: LibraryKernel, classes: int, count: int, most: int, center: bool, threshold: float
) -> None:
    """Of two batches, against the reference, with the least workspace and the most."""
    boxes = boxes_of(count, center, count)
    rng = np.random.default_rng(1)
    candidates = np.stack([[rng.permutation(count) for _ in range(classes)] for _ in range(2)]).astype(np.int64)
    candidates[rng.random(candidates.shape) < 0.05] = -1
    operands = [boxes, candidates, np.array(threshold, np.float32)]
    values = [Value(f"x{n}", TensorType(DType.from_numpy(a.dtype), a.shape)) for n, a in enumerate(operands)]
    function = Function(list(values))
    op = IRBuilder(Module([function]), function, function.ops).multi(
        "non_max_suppression", values, center=center, count=most
    )
    (wanted,) = definition(op).evaluate(operands, op.attrs, [op.result.type])
    assert library.supports(op) and library.workspace is not None
    for room in library.workspace(op):
        found, scratch = np.full(wanted.shape, 7), np.full(room + GUARD, 0xA5, np.uint8)
        tensors = [tvm_ffi.from_dlpack(a) for a in (*operands, found, scratch[:room])]
        tvm_ffi.get_global_func(library.symbol)(*tensors, *library.scalars(op))
        np.testing.assert_array_equal(found, wanted)
        assert (scratch[-GUARD:] == 0xA5).all()

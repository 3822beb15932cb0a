# SPDX-License-Identifier: Apache-2.0
"""Strides of tensors and of views of them, in elements: which reshapes copy, as PyTorch decides it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Dims = tuple[int, ...]


def contiguous(dims: Sequence[int]) -> Dims:
    """Strides of a tensor whose rows lie one after another."""
    strides, step = [], 1
    for size in reversed(dims):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether rows lie one after another; strides of dims of one element do not matter."""
    return all(size == 1 or have == want for size, have, want in zip(dims, strides, contiguous(dims)))


def is_dense(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill a stretch of memory in some order of the axes."""
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(dims, strides) if size > 1):
        if stride != step:
            return False
        step *= size
    return True


def like(dims: Sequence[int], strides: Sequence[int]) -> Dims:
    """Strides of a new tensor in the same order of the axes, as elementwise ops make their results."""
    if not is_dense(dims, strides):
        return contiguous(dims)
    return tuple(strides)


def in_order(dims: Sequence[int], strides: Sequence[int]) -> Dims:
    """Strides of a new tensor without gaps, whose axes lie in the order of these."""
    found, step = [0] * len(dims), 1
    for axis in sorted(range(len(dims)), key=lambda axis: (strides[axis], -axis)):
        found[axis] = step
        step *= max(dims[axis], 1)
    return tuple(found)


def viewed(dims: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Dims | None:
    """Strides of a view of other dims; None where there is none, and a reshape copies."""
    if prod(dims) == 0 or is_contiguous(dims, strides):
        return contiguous(wanted)
    found: list[int] = [0] * len(wanted)
    at = len(wanted) - 1
    chunk_stride = strides[-1] if dims else 1
    elements = taken = 1
    for axis in range(len(dims) - 1, -1, -1):
        elements *= dims[axis]
        whole = axis == 0 or (dims[axis - 1] != 1 and strides[axis - 1] != elements * chunk_stride)
        if not whole:
            continue
        while at >= 0 and (taken < elements or wanted[at] == 1):
            found[at] = taken * chunk_stride
            taken *= wanted[at]
            at -= 1
        if taken != elements:
            return None
        if axis > 0:
            chunk_stride = strides[axis - 1]
            elements = taken = 1
    return tuple(found) if at == -1 else None

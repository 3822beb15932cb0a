# SPDX-License-Identifier: Apache-2.0
"""Sums on the device: the bytes that a reduction over many rows takes to add up its parts, as PyTorch's Reduce.cuh decides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...layouts import contiguous

PROCESSORS = 132
"""Of an H200 or H100."""
THREADS = 512
THREADS_OF_PROCESSOR = 2048
WARP = 32
SUM_BYTES = 4
"""Of a partial sum: f32 for f16 and bf16, too."""


@dataclass(frozen=True)
class Scratch:
    """Bytes of partial sums, and of the counters with which blocks wait for one another."""

    sums: int
    counters: int


def _power(number: int) -> int:
    """The largest power of two up to it."""
    return 1 << max(number, 1).bit_length() - 1


def reduction_scratch(outputs: int, rows: int, rows_fastest: bool, one_axis: bool = False) -> Scratch | None:
    """What the sum of `rows` elements for each of `outputs` results takes; None for nothing.

    `rows_fastest`: whether the elements of one sum are neighbours in memory; `one_axis`: whether everything is summed up.
    """
    vector = 1
    width, height = (rows, outputs) if rows_fastest else (outputs, rows)
    if not rows_fastest:
        vector = next(n for n in (4, 2, 1) if outputs % n == 0)
        width //= vector
    elif one_axis and width > 128:
        width //= 4
    most = THREADS // vector
    wide, high = min(_power(width), most), min(_power(height), most)
    block_width = min(wide, WARP)
    block_height = min(high, most // block_width)
    block_width = min(wide, most // block_height)
    each, output_step = rows, 1
    if rows_fastest:
        each = -(-each // block_width)
    else:
        output_step *= block_width
    split = each >= min(block_height * 16, 256)
    if split:
        each = -(-each // block_height)
    else:
        output_step *= block_height
    grid = -(-(outputs // vector) // output_step)
    target = PROCESSORS * (THREADS_OF_PROCESSOR // (block_width * block_height))
    if not split or each < 256 or grid > target:
        return None
    blocks = max(min(-(-target // grid), -(-each // 16)), -(-each // 256))
    if blocks <= 1:
        return None
    sums = SUM_BYTES * outputs * blocks * (1 if rows_fastest else block_width * vector)
    return Scratch(sums, 4 * grid)


def sum_scratch(dims: Sequence[int], axes: Sequence[int], strides: Sequence[int] | None = None) -> Scratch | None:
    """Of the sum of a tensor over some axes; without strides, its rows lie one after another."""
    steps = contiguous(dims) if strides is None else strides
    reduced = {axis % len(dims) for axis in axes}
    rows = prod(dims[axis] for axis in reduced)
    outputs = prod(dims) // max(rows, 1)
    wide = [axis for axis, size in enumerate(dims) if size > 1]
    fastest = min(wide, key=lambda axis: (steps[axis], -axis), default=0) in reduced
    return reduction_scratch(outputs, rows, fastest, outputs == 1)

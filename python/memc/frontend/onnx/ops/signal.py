# SPDX-License-Identifier: Apache-2.0
"""DFT and STFT as products with constant tables; window functions and MelWeightMatrix as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from memc.frontend.onnx.context import Known, NodeContext, imports
from memc.ir.core import Array, Value
from memc.ir.types import DType

from .reduction import resolve_axis


def fourier_table(length: int, taken: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """The matrix [taken * parts, frequencies * 2] (f64) that maps a signal of `taken` samples to its transform.

    A row holds one part (real, imaginary) of one sample; a column one part of one frequency. A signal longer than
    `length` is cut, a shorter one padded by zeros. `onesided` keeps the frequencies 0 ... length/2.
    """
    used = min(taken, length)
    count = length // 2 + 1 if onesided else length
    # The product modulo the length keeps the angle, and so its sine, exact for large tables.
    turn = np.outer(np.arange(used), np.arange(count)) % length
    angle = 2 * np.pi * turn / length * (1 if inverse else -1)
    cosine, sine = np.cos(angle), np.sin(angle)
    table = np.zeros((taken, parts, count, 2))
    table[:used, 0, :, 0], table[:used, 0, :, 1] = cosine, sine
    if parts == 2:
        table[:used, 1, :, 0], table[:used, 1, :, 1] = -sine, cosine
    if inverse:
        table /= length
    return table.reshape(taken * parts, count * 2)


def inverse_real_table(length: int, taken: int) -> Array:
    """The matrix [taken * 2, length] (f64) from the frequencies 0 ... length/2 of a real signal to the signal."""
    used = min(taken, length // 2 + 1)
    turn = np.outer(np.arange(used), np.arange(length)) % length
    angle = 2 * np.pi * turn / length
    # Each frequency but the first and, of an even length, the last stands for its conjugate too.
    weight = np.full((used, 1), 2.0)
    weight[0] = 1
    if length % 2 == 0 and used == length // 2 + 1:
        weight[-1] = 1
    table = np.zeros((taken, 2, length))
    table[:used, 0], table[:used, 1] = weight * np.cos(angle) / length, -weight * np.sin(angle) / length
    return table.reshape(taken * 2, length)


def multiply_axis(ctx: NodeContext, x: Value, axis: int, table: Array, parts: int) -> Value:
    """`x` [..., n, ..., p] times `table` [n * p, m * parts] along `axis` and the last axis: [..., m, ..., parts]."""
    b, rank, shape = ctx.b, x.type.rank, x.type.shape
    others = [d for d in range(rank - 1) if d != axis]
    perm = (*others, axis, rank - 1)
    moved = b.op("transpose", [x], perm=perm) if perm != tuple(range(rank)) else x
    batch = int(np.prod([shape[d] for d in others], dtype=np.int64))
    flat = b.op("reshape", [moved], shape=(batch, table.shape[0]))
    # In f64: bins that cancel to zero would otherwise keep the rounding errors of those that do not.
    if x.type.dtype is not DType.F64:
        flat = b.op("cast", [flat], to=DType.F64)
    product = b.op("matmul", [flat, b.constant(table.astype(np.float64))], transpose_a=False, transpose_b=False)
    if x.type.dtype is not DType.F64:
        product = b.op("cast", [product], to=x.type.dtype)
    found = b.op("reshape", [product], shape=(*(shape[d] for d in others), table.shape[1] // parts, parts))
    back = tuple(perm.index(d) for d in range(rank))
    return b.op("transpose", [found], perm=back) if back != tuple(range(rank)) else found


def _floating(ctx: NodeContext) -> Value:
    x = ctx.value(0)
    if x.type.dtype not in (DType.F32, DType.F64):
        raise ctx.unsupported(f"a signal of {x.type.dtype.value}")
    return x


@imports("DFT")
def dft(ctx: NodeContext) -> Sequence[Known]:
    x = _floating(ctx)
    axis = ctx.attr("axis", 1) if ctx.opset < 20 else (ctx.ints(2)[0] if ctx.has(2) else -2)
    axis = resolve_axis(ctx, int(axis), x.type.rank)
    inverse, onesided = bool(ctx.attr("inverse", 0)), bool(ctx.attr("onesided", 0))
    taken, parts = x.type.shape[axis], x.type.shape[-1]
    if axis == x.type.rank - 1 or parts not in (1, 2) or (inverse and onesided and parts == 1):
        raise ctx.unsupported(f"a transform of {x.type} along axis {axis}")
    irfft = inverse and onesided
    length = ctx.ints(1)[0] if ctx.has(1) else 2 * (taken - 1) if irfft else taken
    if length < 1:
        raise ctx.unsupported(f"expected a transform length of at least 1, got {length}")
    if irfft:
        return [multiply_axis(ctx, x, axis, inverse_real_table(length, taken), 1)]
    return [multiply_axis(ctx, x, axis, fourier_table(length, taken, parts, inverse, onesided), 2)]


@imports("STFT")
def stft(ctx: NodeContext) -> Sequence[Known]:
    """Frames gathered from the signal, then one product; a known window goes into the table."""
    b, x = ctx.b, _floating(ctx)
    if x.type.rank == 2:
        x = b.op("reshape", [x], shape=(*x.type.shape, 1))
    samples, parts = x.type.shape[1:]
    step = ctx.ints(1)[0]
    window = ctx.known(2)
    length = ctx.ints(3)[0] if ctx.has(3) else ctx.type(2).shape[0] if ctx.has(2) else samples
    width = ctx.type(2).shape[0] if ctx.has(2) else length
    if step < 1 or not 1 <= length <= samples or width != length:
        raise ctx.unsupported(f"frame_step {step}, frame_length {length}, window {width} for {x.type}")
    frames = 1 + (samples - length) // step
    positions = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = b.op("gather", [x, b.constant(positions.astype(np.int64))], axis=1)
    table = fourier_table(length, length, parts, False, bool(ctx.attr("onesided", 1)))
    if window is not None:
        table = table * np.repeat(window.astype(np.float64), parts)[:, None]
    elif ctx.has(2):
        cut = b.op("mul", [cut, b.op("reshape", [ctx.value(2)], shape=(1, 1, length, 1))])
    return [multiply_axis(ctx, cut, 2, table, 2)]


def _output_dtype(ctx: NodeContext) -> np.dtype[Any]:
    """The numpy type that attribute output_datatype names."""
    to = int(ctx.attr("output_datatype", 1))
    if to not in onnx.TensorProto.DataType.values() or to in (0, 8):
        raise ctx.unsupported(f"output_datatype {to}")
    dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to))
    return dtype


def _window(ctx: NodeContext, a0: float, a1: float, a2: float) -> Sequence[Known]:
    """a0 - a1 cos(t) + a2 cos(2 t), with t going once around in `size` steps, or one less if not periodic."""
    size = ctx.ints(0)[0]
    if not 0 <= size <= 1 << 28:
        raise ctx.unsupported(f"expected a window size from 0 to 2^28, got {size}")
    steps = size if ctx.attr("periodic", 1) else size - 1
    angle = np.arange(size) * (2 * np.pi / steps if steps else np.nan)
    return [(a0 - a1 * np.cos(angle) + a2 * np.cos(2 * angle)).astype(_output_dtype(ctx))]


@imports("HannWindow")
def hann_window(ctx: NodeContext) -> Sequence[Known]:
    return _window(ctx, 0.5, 0.5, 0)


@imports("HammingWindow")
def hamming_window(ctx: NodeContext) -> Sequence[Known]:
    return _window(ctx, 25 / 46, 21 / 46, 0)


@imports("BlackmanWindow")
def blackman_window(ctx: NodeContext) -> Sequence[Known]:
    return _window(ctx, 0.42, 0.5, 0.08)


@imports("MelWeightMatrix")
def mel_weight_matrix(ctx: NodeContext) -> Sequence[Known]:
    """Triangular filters, evenly spaced on the mel scale, by frequency bin and filter."""
    bins, length, rate = (ctx.ints(i)[0] for i in range(3))
    low, high = (float(ctx.const(i).reshape(-1)[0]) for i in (3, 4))
    dtype = _output_dtype(ctx)

    def mel(hertz: float) -> float:
        return float(2595 * np.log10(1 + hertz / 700))

    edges = mel(low) + np.arange(bins + 2) * ((mel(high) - mel(low)) / (bins + 2))
    edges = 700 * (10 ** (edges / 2595) - 1)
    edges = ((length + 1) * edges // rate).astype(int)
    found = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, center, right = edges[i : i + 3]
        if left == center:
            found[center, i] = 1
        else:
            found[left : center + 1, i] = (np.arange(left, center + 1) - left) / (center - left)
        if right > center:
            found[center:right, i] = (right - np.arange(center, right)) / (right - center)
    return [found.astype(dtype)]

# SPDX-License-Identifier: Apache-2.0
"""What convolutions and pools share: window attributes, output extents, padded reads, strided numpy windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...core import Array, Attr, Op
from ...errors import OpError
from ...types import DType, TensorType
from .op_def import Attrs, Builder, Expr, Tensor


@dataclass(frozen=True)
class Window:
    """A sliding window over the spatial axes; one entry per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[int, ...]
    """Elements of padding before the first, per axis."""
    high: tuple[int, ...]
    """Elements of padding after the last, per axis."""
    dilations: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def output(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Number of window positions per axis. Raises OpError where the window does not fit once."""
        extents = []
        for axis, size in enumerate(spatial):
            reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1
            room = size + self.low[axis] + self.high[axis] - reach
            if room < 0:
                raise OpError(
                    f"expected a padded extent of at least {reach} on spatial axis {axis} (kernel {self.kernel[axis]}, "
                    f"dilation {self.dilations[axis]}), got {size + self.low[axis] + self.high[axis]}"
                )
            extents.append(room // self.strides[axis] + 1)
        return tuple(extents)


def int_tuple(attrs: Attrs, name: str, length: int, least: int) -> tuple[int, ...]:
    """Attribute `name` as `length` integers of at least `least`. Raises OpError otherwise."""
    value = attrs.get(name)
    if (
        not isinstance(value, tuple)
        or len(value) != length
        or any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in value)
    ):
        raise OpError(f"expected attribute `{name}` with {length} integers of at least {least}, got {value}")
    return tuple(v for v in value if isinstance(v, int))


def integer(attrs: Attrs, name: str, least: int) -> int:
    """Attribute `name` as an integer of at least `least`. Raises OpError otherwise."""
    value = attrs.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OpError(f"expected attribute `{name}` with an integer of at least {least}, got {value}")
    return value


def flag(attrs: Attrs, name: str, default: bool | None = None) -> bool:
    """Attribute `name` as a boolean. Raises OpError if it is something else, or absent without a default."""
    value = attrs.get(name, default)
    if not isinstance(value, bool):
        raise OpError(f"expected attribute `{name}` true or false, got {value}")
    return value


def choice(attrs: Attrs, name: str, choices: Sequence[str]) -> str:
    """Attribute `name` as one of `choices`. Raises OpError otherwise."""
    value = attrs.get(name)
    if not isinstance(value, str) or value not in choices:
        raise OpError(f"expected attribute `{name}` one of {', '.join(choices)}, got {value}")
    return value


def window(attrs: Attrs, kernel: Sequence[int] | None, rank: int) -> Window:
    """The window that `strides`, `pads` (begins, then ends) and `dilations` describe.

    `kernel` comes from the weights' shape, or else from attribute `kernel`.
    """
    pads = int_tuple(attrs, "pads", 2 * rank, 0)
    return Window(
        kernel=tuple(kernel) if kernel is not None else int_tuple(attrs, "kernel", rank, 1),
        strides=int_tuple(attrs, "strides", rank, 1),
        low=pads[:rank],
        high=pads[rank:],
        dilations=int_tuple(attrs, "dilations", rank, 1),
    )


def conv_attrs(op: Op) -> dict[str, Attr]:
    """What a convolution and the ops of its gradients have in common: how windows move, and channel groups."""
    return {name: op.attrs[name] for name in ("strides", "pads", "dilations", "group")}


def accumulator(dtype: DType) -> DType:
    """The dtype sums of products of `dtype` are made in: f32 for f16 and bf16, else the same."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def require_numeric(operands: Sequence[TensorType]) -> None:
    """Raise OpError unless all operands have the same numeric dtype."""
    if len({t.dtype for t in operands}) != 1 or operands[0].dtype is DType.BOOL:
        raise OpError(f"expected operands of one numeric type, got {', '.join(map(str, operands))}")


def require_count(operands: Sequence[TensorType], *counts: int) -> None:
    """Raise OpError unless the number of operands is one of `counts`."""
    if len(operands) not in counts:
        raise OpError(f"expected {' or '.join(map(str, counts))} operands, got {len(operands)}")


def lowest(dtype: DType) -> float | int:
    """The neutral element of max: -inf, or the least integer."""
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


def windows_of(x: Array, w: Window, fill: float | int) -> Array:
    """Strided view [N, C, out..., kernel...] of x [N, C, spatial...] padded with `fill`."""
    out = w.output(x.shape[2:])
    widths = [(0, 0), (0, 0), *zip(w.low, w.high)]
    if any(a or b for a, b in widths):
        x = np.pad(x, widths, constant_values=np.asarray(fill, dtype=x.dtype))
    spatial = x.strides[2:]
    strides = [s * t for s, t in zip(spatial, w.strides)] + [s * d for s, d in zip(spatial, w.dilations)]
    shape = (*x.shape[:2], *out, *w.kernel)
    return np.lib.stride_tricks.as_strided(x, shape, (*x.strides[:2], *strides), writeable=False)


def positions(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    """All kernel positions in row-major order."""
    return list(product(*(range(k) for k in kernel)))


def strided(x: Array, w: Window, position: Sequence[int], out: Sequence[int]) -> Array:
    """The element of an already padded x [N, C, spatial...] under kernel `position` of each window: [N, C, out...]."""
    picks = [
        slice(p * d, p * d + s * (o - 1) + 1 if o else p * d, s)
        for p, d, s, o in zip(position, w.dilations, w.strides, out)
    ]
    return np.asarray(x[(slice(None), slice(None), *picks)])


def padded(x: Array, w: Window, fill: float | int) -> Array:
    """x [N, C, spatial...] with the window's padding around it."""
    widths = [(0, 0), (0, 0), *zip(w.low, w.high)]
    if not any(a or b for a, b in widths):
        return x
    return np.pad(x, widths, constant_values=np.asarray(fill, dtype=x.dtype))


def read(
    b: Builder,
    x: Tensor,
    spatial: Sequence[int],
    w: Window,
    lead: Sequence[Expr],
    at: Sequence[Expr],
    taps: Sequence[Expr],
    outside: Expr,
) -> Expr:
    """x[lead..., at * stride + tap * dilation - low], or `outside` where that falls into the padding."""
    index, guards = source(b, spatial, w, at, taps)
    value = x[(*lead, *index)]
    return b.select(b.logical_and(*guards), value, outside) if guards else value


def source(
    b: Builder, spatial: Sequence[int], w: Window, at: Sequence[Expr], taps: Sequence[Expr]
) -> tuple[list[Expr], list[Expr]]:
    """The element of each spatial axis under tap `taps` of window `at`, and the conditions that it exists."""
    index: list[Expr] = []
    guards: list[Expr] = []
    for axis in range(w.rank):
        position = at[axis] * w.strides[axis] + taps[axis] * w.dilations[axis]
        if w.low[axis]:
            position = position - w.low[axis]
            guards.append(position >= 0)
        if w.high[axis]:
            guards.append(position < spatial[axis])
        index.append(position)
    return index, guards


def cover_extents(w: Window) -> tuple[int, ...]:
    """Per spatial axis, the steps of a loop over all windows that may cover one element (see `covering`)."""
    return tuple(-(-k // s) if d == 1 else k for k, s, d in zip(w.kernel, w.strides, w.dilations))


def covering(
    b: Builder, w: Window, at: Sequence[Expr], steps: Sequence[Expr], windows: Sequence[int]
) -> tuple[list[Expr], list[Expr], Expr]:
    """What is inverse to `source`: the window that covers element `at` in loop step `steps`.

    Returns per axis the window's position and the tap that lands on the element, and the condition that there are such.
    Without dilation a step is a window, counted back from the last that starts at or before the element; with dilation
    it is a tap, which only every stride-th element has.
    """
    index: list[Expr] = []
    taps: list[Expr] = []
    guards: list[Expr] = []
    for axis in range(w.rank):
        position = at[axis] + w.low[axis] if w.low[axis] else at[axis]
        stride, step = w.strides[axis], steps[axis]
        if w.dilations[axis] > 1:
            distance = position - step * w.dilations[axis]
            window, tap = distance, step
            if stride > 1:
                window = b.floordiv(distance, stride)
                guards.append(b.equal(b.floormod(distance, stride), 0))
        elif stride > 1:
            window = b.floordiv(position, stride) - step
            tap = b.floormod(position, stride) + step * stride
            if w.kernel[axis] % stride:
                guards.append(tap < w.kernel[axis])
        else:
            window, tap = position - step, step
        guards += [window >= 0, window < windows[axis]]
        index.append(window)
        taps.append(tap)
    return index, taps, b.logical_and(*guards)

# SPDX-License-Identifier: Apache-2.0
"""Rewrites that take a slice before what it slices, where nobody else needs the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memc.ir.core import Op, Value
from memc.passes.op_rules import view_offset

if TYPE_CHECKING:
    from memc.passes.canonicalize import Context


def slice_of_transpose(context: Context, op: Op) -> Value | None:
    """Slice first: less is moved."""
    inner = _producer(context, op, "transpose")
    if inner is None:
        return None
    perm = _integers(inner, "perm")
    bounds = {}
    for name in ("starts", "stops", "steps"):
        values = _integers(op, name)
        bounds[name] = tuple(values[perm.index(axis)] for axis in range(len(perm)))
    part = context.builder.op("slice", [inner.operands[0]], **bounds)
    return context.builder.op("transpose", [part], perm=perm)


def slice_of_reshape(context: Context, op: Op) -> Value | None:
    """One contiguous run of a reshaped concat or transpose, cut out of that if it is a slice of it, too."""
    inner = _producer(context, op, "reshape")
    at, result = view_offset(op), op.result.type
    if inner is None or at is None or result.elements == 0:
        return None
    source = inner.operands[0]
    if source.op is None or source.op.name not in ("concat", "transpose") or not context.used_once(source):
        return None
    ranges = _ranges_of_run(source.type.shape, at // result.dtype.itemsize, result.elements)
    if ranges is None:
        return None
    starts, stops = zip(*ranges)
    part = context.builder.op("slice", [source], starts=starts, stops=stops, steps=(1,) * len(ranges))
    return context.builder.op("reshape", [part], shape=result.shape)


def _ranges_of_run(shape: Sequence[int], first: int, count: int) -> list[tuple[int, int]] | None:
    """(start, stop) on each axis of the `count` elements from `first` on in row-major order, if they are a box."""
    ranges: list[tuple[int, int]] = []
    for axis, extent in enumerate(shape):
        row = math.prod(shape[axis + 1 :])
        start, within = divmod(first, row)
        if within == 0 and count % row == 0 and start + count // row <= extent:
            ranges.append((start, start + count // row))
            return ranges + [(0, n) for n in shape[axis + 1 :]]
        if within + count > row:
            return None
        ranges.append((start, start + 1))
        first = within
    return None


def slice_of_concat(context: Context, op: Op) -> Value | None:
    """A slice that lies within one operand of a concat is one of that."""
    inner = _producer(context, op, "concat")
    if inner is None or op.result.type.elements == 0:
        return None
    axis = inner.attrs["axis"]
    assert isinstance(axis, int)
    starts, stops, steps = (list(_integers(op, name)) for name in ("starts", "stops", "steps"))
    if steps[axis] != 1:
        return None
    before = 0
    for operand in inner.operands:
        extent = operand.type.shape[axis]
        if before <= starts[axis] and stops[axis] <= before + extent:
            starts[axis], stops[axis] = starts[axis] - before, stops[axis] - before
            return context.builder.op("slice", [operand], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
        before += extent
    return None


def _producer(context: Context, op: Op, name: str) -> Op | None:
    """The op of that name that makes the operand, if only `op` reads it."""
    inner = op.operands[0].op
    return inner if inner is not None and inner.name == name and context.used_once(op.operands[0]) else None


def _integers(op: Op, name: str) -> tuple[int, ...]:
    values = op.attrs[name]
    assert isinstance(values, tuple)
    return tuple(int(value) for value in values)  # type: ignore[arg-type]

# SPDX-License-Identifier: Apache-2.0
"""Rewrites that take a slice before what it slices, where nobody else needs the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memc.ir.core import Op, Value
from memc.ir.op_queries import origin_of, view_offset

if TYPE_CHECKING:
    from memc.passes.rewrite.canonicalize import Context


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
    """One contiguous run of a reshaped concat, transpose or pad, cut out of that if it is a slice of it, too. Of a pad
    there is no need to keep the rest from others: nothing of it is read any more."""
    inner, at, result = op.operands[0].op, view_offset(op), op.result.type
    if inner is None or inner.name != "reshape" or at is None or result.elements == 0:
        return None
    source = inner.operands[0]
    if source.op is None or source.op.name not in ("concat", "transpose", "pad"):
        return None
    if source.op.name != "pad" and not (context.used_once(op.operands[0]) and context.used_once(source)):
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


def slice_of_pad(context: Context, op: Op) -> Value | None:
    """A slice that lies within what is padded is one of that; one that lies in a padding with a constant is a constant."""
    inner = op.operands[0].op
    if inner is None or inner.name != "pad" or inner.attrs["mode"] != "constant" or op.result.type.elements == 0:
        return None
    starts, stops, steps = (_integers(op, name) for name in ("starts", "stops", "steps"))
    if any(step < 0 for step in steps):
        return None
    begins = _integers(inner, "low")
    ends = [begin + extent for begin, extent in zip(begins, inner.operands[0].type.shape)]
    if any(stop <= begin or start >= end for start, stop, begin, end in zip(starts, stops, begins, ends)):
        value = inner.attrs["value"]
        assert isinstance(value, (int, float))
        scalar = context.builder.scalar(value, op.result.type.dtype)
        return context.builder.op("broadcast", [scalar], shape=op.result.type.shape)
    if any(start < begin or stop > end for start, stop, begin, end in zip(starts, stops, begins, ends)):
        return None
    bounds = {"starts": starts, "stops": stops}
    moved = {name: tuple(at - begin for at, begin in zip(ats, begins)) for name, ats in bounds.items()}
    return context.builder.op("slice", [inner.operands[0]], **moved, steps=steps)


def transpose_of_pad(context: Context, op: Op) -> Value | None:
    """Transpose first: less is moved."""
    inner = _producer(context, op, "pad")
    if inner is None:
        return None
    perm = _integers(op, "perm")
    part = context.builder.op("transpose", [inner.operands[0]], perm=perm)
    widths = {name: tuple(_integers(inner, name)[axis] for axis in perm) for name in ("low", "high")}
    return context.builder.op("pad", [part], inner.plan, **{**inner.attrs, **widths})


def concat_of_parts(context: Context, op: Op) -> Value | None:
    """All parts of a value one after another are that value."""
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    whole = whole_of(op.operands, axis)
    return None if whole is None else context.builder.op("reshape", [whole], shape=op.result.type.shape)


def whole_of(parts: Sequence[Value], axis: int) -> Value | None:
    """The value of whose bytes these are views, without gaps and in their order, if joined along `axis` they lie one behind
    another."""
    whole, behind = origin_of(parts[0])[0], 0
    if math.prod(parts[0].type.shape[:axis]) != 1 or whole.type.elements == 0:
        return None
    for part in parts:
        if origin_of(part) != (whole, behind):
            return None
        behind += part.type.nbytes
    return whole if behind == whole.type.nbytes and whole.type.dtype is parts[0].type.dtype else None


def _producer(context: Context, op: Op, name: str) -> Op | None:
    """The op of that name that makes the operand, if only `op` reads it."""
    inner = op.operands[0].op
    return inner if inner is not None and inner.name == name and context.used_once(op.operands[0]) else None


def _integers(op: Op, name: str) -> tuple[int, ...]:
    values = op.attrs[name]
    assert isinstance(values, tuple)
    return tuple(int(value) for value in values)  # type: ignore[arg-type]

# SPDX-License-Identifier: Apache-2.0
"""slice: every step-th element of a range on each axis."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import TensorType
from .shared.common import count, ints_attr
from .shared.derivatives import keep_where, zeros
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register


def extent_of(start: int, stop: int, step: int) -> int:
    """Elements of range(start, stop, step)."""
    return len(range(start, stop, step))


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    source = operands[0]
    starts, stops, steps = (ints_attr(attrs, name, source.rank) for name in ("starts", "stops", "steps"))
    for axis, (start, stop, step, extent) in enumerate(zip(starts, stops, steps, source.shape)):
        least, most = (0, extent) if step > 0 else (-1, extent - 1)
        if step == 0:
            raise OpError(f"expected a step other than 0 on axis {axis}")
        if not (least <= start <= most and least <= stop <= most):
            raise OpError(
                f"expected start and stop in [{least}, {most}] on axis {axis} of {source} with step {step}, "
                f"got {start} and {stop}"
            )
    return [source.with_shape(tuple(extent_of(*bounds) for bounds in zip(starts, stops, steps)))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    starts, stops, steps = (ints_attr(attrs, name) for name in ("starts", "stops", "steps"))
    window = tuple(
        builtins.slice(start, None if stop < 0 else stop, step) if extent else builtins.slice(0, 0)
        for start, stop, step, extent in zip(starts, stops, steps, results[0].shape)
    )
    return [inputs[0][window]]


def view(op: Op) -> int | None:
    """Byte offset of the slice if it is one contiguous run of the operand: on the axes after the first one with more
    than one element, everything is taken."""
    source, result = op.operands[0].type, op.result.type
    if result.elements == 0:
        return 0
    starts, steps = ints_attr(op.attrs, "starts"), ints_attr(op.attrs, "steps")
    inside_run = False
    first = 0
    for extent, full, start, step in zip(result.shape, source.shape, starts, steps):
        if inside_run and extent != full:
            return None
        if extent > 1:
            if step != 1:
                return None
            inside_run = True
        first = first * full + start
    return first * source.dtype.itemsize


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    starts, steps = ints_attr(op.attrs, "starts"), ints_attr(op.attrs, "steps")

    def body(*index: Expr) -> Expr:
        return inputs[0][tuple(i * step + start for i, start, step in zip(index, starts, steps))]

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None]
    return [spread_out(b, g, op.operands[0].type, ints_attr(op.attrs, "starts"), ints_attr(op.attrs, "steps"))]


def spread_out(b: IRBuilder, g: Value, source: TensorType, starts: Sequence[int], steps: Sequence[int]) -> Value:
    """The elements of a slice of `source` back at their places, zeros elsewhere."""
    if g.type.elements == 0:
        return zeros(b, source)
    for axis, (start, step, extent) in enumerate(zip(starts, steps, source.shape)):
        if step != 1 and g.type.shape[axis] > 1:
            g = _axis_spread_out(b, g, axis, start, step, extent)
    low = tuple(0 if n == full else start for start, n, full in zip(starts, g.type.shape, source.shape))
    high = tuple(full - before - n for before, n, full in zip(low, g.type.shape, source.shape))
    if not any(low + high):
        return g
    # Added to another gradient, negative zeros change no bit of it.
    return b.op("pad", [g], low=low, high=high, mode="constant", value=-0.0)


def _axis_spread_out(b: IRBuilder, g: Value, axis: int, start: int, step: int, extent: int) -> Value:
    """Element k of one axis at start + k * step of `extent` places."""
    at = (np.arange(extent) - start) // step
    hit = (at >= 0) & (at < g.type.shape[axis]) & (start + at * step == np.arange(extent))
    picked = b.op("gather", [g, b.constant(np.where(hit, at, 0))], axis=axis)
    mask = hit.reshape([extent if d == axis else 1 for d in range(g.type.rank)])
    return keep_where(b, b.constant(mask), picked)


register(
    OpDef(
        name="slice",
        doc="Every step-th element from start to before stop, on each axis.\n\n"
        "Attributes `starts`, `stops`, `steps`, one integer per axis, resolved: for a positive step\n"
        "0 <= start, stop <= extent; for a negative one -1 <= start, stop < extent, where stop -1 takes element 0.",
        spec="https://onnx.ai/onnx/operators/onnx__Slice.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=view,
        slices=None,
        flops=no_flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)

# SPDX-License-Identifier: Apache-2.0
"""pad: elements added around a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .shared.casts import cast
from .shared.common import clamped, count, ints_attr, str_attr
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register

MODES = ("constant", "reflect", "edge", "wrap")


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    count(operands, 1)
    source = operands[0]
    low, high = (ints_attr(attrs, name, source.rank) for name in ("low", "high"))
    mode = str_attr(attrs, "mode", MODES)
    if min(low + high, default=0) < 0:
        raise OpError(f"expected attributes `low` and `high` of at least 0, got {list(low)} and {list(high)}")
    _check_value(attrs.get("value"), source.dtype)
    for axis, (before, extent, after) in enumerate(zip(low, source.shape, high)):
        if mode != "constant" and extent == 0 and before + after:
            raise OpError(f"expected elements to take from on axis {axis} of {source} for mode {mode}, got none")
    return [source.with_shape(tuple(a + n + z for a, n, z in zip(low, source.shape, high)))]


def _check_value(value: object, dtype: DType) -> None:
    """Raises OpError unless `value` is a number that the element type can hold."""
    if not isinstance(value, (bool, int, float, np.generic)):
        raise OpError(f"expected a number as attribute `value`, got {value!r}")
    if dtype.is_float or dtype is DType.BOOL:
        return
    limits = np.iinfo(dtype.numpy)
    if not limits.min <= value <= limits.max or int(value) != value:  # type: ignore[operator]
        raise OpError(f"expected attribute `value` to be of type {dtype.value}, got {value!r}")


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    data, mode = inputs[0], str_attr(attrs, "mode", MODES)
    low, high = ints_attr(attrs, "low"), ints_attr(attrs, "high")
    if mode == "constant":
        padded = np.full(results[0].shape, fill_value(attrs["value"], results[0].dtype), dtype=data.dtype)
        padded[tuple(slice(a, a + n) for a, n in zip(low, data.shape))] = data
        return [padded]
    for axis, (before, after) in enumerate(zip(low, high)):
        positions = np.arange(-before, data.shape[axis] + after)
        data = data.take(_source_numpy(positions, data.shape[axis], mode), axis=axis)
    return [data]


def _source_numpy(position: Any, extent: int, mode: str) -> Any:
    """Which element stands at `position`, counted from the operand's first element."""
    if mode == "edge":
        return np.clip(position, 0, extent - 1)
    if mode == "wrap":
        return position % extent
    period = max(2 * (extent - 1), 1)
    folded = position % period
    return np.minimum(folded, period - folded) if extent > 1 else folded * 0


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    source, result = op.operands[0].type, op.result.type
    low, high = ints_attr(op.attrs, "low"), ints_attr(op.attrs, "high")
    mode = str_attr(op.attrs, "mode", MODES)

    def folded(position: Expr, extent: int, before: int, after: int) -> Expr | int:
        if before == after == 0:
            return position
        if extent == 1:
            return 0
        if mode == "edge":
            return clamped(b, position, extent)
        if mode == "wrap":
            return b.floormod(position, extent)
        period = 2 * (extent - 1)
        inside = b.floormod(position, period)
        return b.minimum(inside, period - inside)

    def body(*index: Expr) -> Expr:
        positions = [i - before if before else i for i, before in zip(index, low)]
        if mode != "constant":
            return inputs[0][tuple(folded(*row) for row in zip(positions, source.shape, low, high))]
        value = b.const(fill_value(op.attrs["value"], result.dtype), result.dtype)
        if source.elements == 0:
            return value
        tests = [position >= 0 for position, before in zip(positions, low) if before]
        tests += [position < n for position, n, after in zip(positions, source.shape, high) if after]
        inside = inputs[0][tuple(positions)]
        return b.select(b.logical_and(*tests), inside, value) if tests else inside

    return [b.compute(result, body)]


def fill_value(value: Any, dtype: DType) -> bool | int | float:
    """A number attribute as a constant of an element type."""
    if dtype is DType.BOOL:
        return bool(value)
    return float(value) if dtype.is_float else int(value)


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = grads
    if g is None:
        return [None]
    source = op.operands[0].type
    low, high = ints_attr(op.attrs, "low"), ints_attr(op.attrs, "high")
    mode = str_attr(op.attrs, "mode", MODES)
    if mode == "constant":
        stops = tuple(before + n for before, n in zip(low, source.shape))
        return [b.op("slice", [g], starts=low, stops=stops, steps=(1,) * source.rank)]
    for axis, (before, extent, after) in enumerate(zip(low, source.shape, high)):
        if before + after:
            g = _collected(b, g, axis, _source_numpy(np.arange(-before, extent + after), extent, mode), extent)
    return [g]


def _collected(b: IRBuilder, g: Value, axis: int, origins: Any, extent: int) -> Value:
    """Sums along one axis of what came from each of `extent` places: a product with a matrix of ones and zeros."""
    matrix = (origins[:, None] == np.arange(extent)).astype(g.type.dtype.numpy)
    last = g.type.rank - 1
    swap = tuple({axis: last, last: axis}.get(d, d) for d in range(g.type.rank))
    rows = b.op("transpose", [g], perm=swap)
    flat = b.op("reshape", [rows], shape=(rows.type.elements // len(origins), len(origins)))
    summed = cast(b, b.op("matmul", [flat, b.constant(matrix)]), g.type.dtype)
    shaped = b.op("reshape", [summed], shape=(*rows.type.shape[:-1], extent))
    return b.op("transpose", [shaped], perm=swap)


register(
    OpDef(
        name="pad",
        doc="Elements added around a tensor.\n\n"
        "Attributes `low` and `high`: how many before and after, per axis, at least 0; `mode`: `constant` fills with\n"
        "`value` (ignored otherwise), `reflect` mirrors without repeating the edge, `edge` repeats it, `wrap` is periodic.",
        spec="https://onnx.ai/onnx/operators/onnx__Pad.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=no_flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)

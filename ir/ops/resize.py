# SPDX-License-Identifier: Apache-2.0
"""resize and resize_nearest: resampling along axes by precomputed index and weight tables.

The tables say everything about coordinate transformation, interpolation, antialiasing and borders; whoever makes the
op computes them, since sizes are static.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Role, Value
from ..errors import OpError, UnsupportedError
from ..types import DType, TensorType
from .shared.casts import cast, widen
from .shared.common import clamped
from .shared.op_def import Attrs, Builder, Compute, Expr, OpDef, Tensor, Trait, no_flops, register


def _axes(x: TensorType, attrs: Attrs, tables: int) -> tuple[int, ...]:
    axes = attrs.get("axes")
    if not isinstance(axes, tuple) or not all(isinstance(a, int) and 0 <= a < x.rank for a in axes):
        raise OpError(f"expected attribute `axes` with axes of {x}, got {axes}")
    if len(set(axes)) != len(axes) or len(axes) != tables:
        raise OpError(f"expected {tables} different axes, one per table, got {axes}")
    return tuple(a for a in axes if isinstance(a, int))


def _resized(x: TensorType, axes: Sequence[int], tables: Sequence[TensorType]) -> tuple[int, ...]:
    shape = list(x.shape)
    for axis, table in zip(axes, tables):
        shape[axis] = table.shape[0]
        if x.shape[axis] == 0 and table.elements:
            raise OpError(f"expected a source with elements on axis {axis}, got {x}")
    return tuple(shape)


def nearest_infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if len(operands) < 2:
        raise OpError(f"expected x and an index table per axis, got {len(operands)} operands")
    x, tables = operands[0], operands[1:]
    axes = _axes(x, attrs, len(tables))
    for table in tables:
        if table.dtype is not DType.I32 or table.rank != 1:
            raise OpError(f"expected index tables i32[out], got {table}")
    return [x.with_shape(_resized(x, axes, tables))]


def nearest_evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    y = inputs[0]
    for axis, table in zip(attrs["axes"], inputs[1:]):  # type: ignore[arg-type]
        y = np.take(y, table, axis=axis, mode="clip") if table.size else np.take(y, table, axis=axis)
    return [y]


def nearest_lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    axes = _axes(x, op.attrs, len(inputs) - 1)

    def body(*index: Expr) -> Expr:
        position = list(index)
        for axis, table in zip(axes, inputs[1:]):
            position[axis] = clamped(b, table[index[axis]], x.shape[axis])
        return inputs[0][tuple(position)]

    return [b.compute(op.result.type, body)]


def _known(b: IRBuilder, op: Op, table: Value) -> Array:
    """A table's data. Raises UnsupportedError if it is only known when the model runs."""
    data = table.op.attrs["value"] if table.op is not None and table.op.name == "constant" else None
    if table.role is Role.WEIGHT:
        data = b.module.weights.get(table.name)
    if not isinstance(data, np.ndarray):
        raise UnsupportedError(
            f"op {op.name}: expected constant tables for a gradient, got %{table.name}, which is computed"
        )
    return data


def _transposed(index: Array, weight: Array, extent: int) -> tuple[Array, Array]:
    """Tables [extent, taps] that send each weighted element back to where it came from; short rows end in weights 0."""
    index = np.clip(index, 0, extent - 1)
    taps = max(int(np.bincount(index.reshape(-1), minlength=extent).max(initial=0)), 1)
    back, share = np.zeros((extent, taps), np.int32), np.zeros((extent, taps), weight.dtype)
    filled = [0] * extent
    for (out, tap), source in np.ndenumerate(index):
        back[source, filled[source]], share[source, filled[source]] = out, weight[out, tap]
        filled[source] += 1
    return back, share


def _send_back(b: IRBuilder, op: Op, g: Value, tables: Sequence[tuple[Array, Array]]) -> Value:
    """The gradient in x, one axis after another: each has few taps, where all axes at once have their product."""
    x = op.operands[0].type
    found = widen(b, g)
    for axis, (index, weight) in zip(_axes(x, op.attrs, len(tables)), tables):
        back, share = _transposed(index, weight.astype(found.type.dtype.numpy), x.shape[axis])
        found = b.op("resize", [found, b.constant(back), b.constant(share)], axes=(axis,))
    return cast(b, found, x.dtype)


def nearest_gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """A resize by the transposed tables. Reads nothing."""
    (g,) = grads
    none = [None] * (len(op.operands) - 1)
    if g is None or not op.operands[0].type.dtype.is_float:
        return [None, *none]
    indices = [_known(b, op, table)[:, None] for table in op.operands[1:]]
    return [_send_back(b, op, g, [(index, np.ones(index.shape)) for index in indices]), *none]


register(
    OpDef(
        name="resize_nearest",
        doc="Copies of x's elements at table positions: y[.., o, ..] = x[.., index[o], ..] along each of `axes`.\n\n"
        "Operands: x, then one index table i32[out] per entry of attribute `axes`. Indices are clamped to the axis.",
        spec="https://onnx.ai/onnx/operators/onnx__Resize.html",
        infer=nearest_infer,
        evaluate=nearest_evaluate,
        gradient=nearest_gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=no_flops,
        lower=Compute(nearest_lower),
        library=(),
        traits=frozenset({Trait.INJECTIVE, Trait.CHEAP}),
    )
)


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    if len(operands) < 3 or len(operands) % 2 == 0:
        raise OpError(f"expected x and an index and a weight table per axis, got {len(operands)} operands")
    x, indices, weights = operands[0], operands[1::2], operands[2::2]
    if x.dtype not in (DType.F32, DType.F64):
        raise OpError(f"expected x of f32 or f64, got {x}")
    axes = _axes(x, attrs, len(indices))
    for index, weight in zip(indices, weights):
        if index.dtype is not DType.I32 or index.rank != 2 or weight != TensorType(x.dtype, index.shape):
            raise OpError(f"expected tables i32[out,taps] and {x.dtype.value}[out,taps], got {index} and {weight}")
    return [x.with_shape(_resized(x, axes, indices))]


def evaluate(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    y = inputs[0]
    for axis, index, weight in zip(attrs["axes"], inputs[1::2], inputs[2::2]):  # type: ignore[arg-type]
        moved = np.moveaxis(y, axis, -1)
        total = np.zeros((*moved.shape[:-1], index.shape[0]), dtype=y.dtype)
        for tap in range(index.shape[1] if index.size else 0):
            total += moved[..., np.clip(index[:, tap], 0, moved.shape[-1] - 1)] * weight[:, tap]
        y = np.moveaxis(total, -1, axis)
    return [np.ascontiguousarray(y)]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    x = op.operands[0].type
    axes = _axes(x, op.attrs, len(inputs) // 2)
    extents = [v.type.shape[1] for v in op.operands[1::2]]

    def body(*index: Expr) -> Expr:
        def term(*taps: Expr) -> Expr:
            position = list(index)
            factor: Expr | None = None
            for axis, tap, table, weight in zip(axes, taps, inputs[1::2], inputs[2::2]):
                position[axis] = clamped(b, table[index[axis], tap], x.shape[axis])
                share = weight[index[axis], tap]
                factor = share if factor is None else factor * share
            assert factor is not None
            return inputs[0][tuple(position)] * factor

        return b.reduce("sum", extents, term)

    return [b.compute(op.result.type, body)]


def gradient(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """A resize by the transposed tables, which are constant. Reads nothing."""
    (g,) = grads
    none = [None] * (len(op.operands) - 1)
    if g is None:
        return [None, *none]
    tables = [_known(b, op, table) for table in op.operands[1:]]
    return [_send_back(b, op, g, list(zip(tables[::2], tables[1::2]))), *none]


def flops(op: Op) -> int:
    return 2 * op.result.type.elements * math.prod(v.type.shape[1] for v in op.operands[1::2])


register(
    OpDef(
        name="resize",
        doc="Weighted sums of x's elements at table positions along each of `axes`.\n\n"
        "Operands: x (f32 or f64), then an index table i32[out,taps] and a weight table [out,taps] of x's type per entry\n"
        "of attribute `axes`: y[.., o, ..] = sum over t of x[.., index[o,t], ..] * weight[o,t]. Indices are clamped.",
        spec="https://onnx.ai/onnx/operators/onnx__Resize.html",
        infer=infer,
        evaluate=evaluate,
        gradient=gradient,
        in_place=None,
        view=None,
        slices=None,
        flops=flops,
        lower=Compute(lower),
        library=(),
        traits=frozenset({Trait.REDUCTION}),
    )
)

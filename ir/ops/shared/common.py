# SPDX-License-Identifier: Apache-2.0
"""Helpers that op files share: shape broadcasting, elementwise rules, indices and attribute checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import Array, Op
from ...errors import OpError
from ...types import DType, TensorType
from .op_def import Attrs, Builder, Compute, Expr, Tensor

_PLAIN = frozenset({int})
"""The type of what nearly all lists of integers hold."""

ElementFn = Callable[[Builder, Op, Sequence[Expr]], Expr]
"""The element computation of an elementwise op: one scalar per operand to the result's scalar."""


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The numpy broadcast of the shapes. Raises OpError naming all of them if they do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        extents = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(extents) > 1:
            shown = " and ".join(str(list(s)) for s in shapes)
            raise OpError(f"shapes {shown} do not broadcast: axis {axis} has extents {sorted(extents)}")
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def broadcast_index(index: Sequence[Any], shape: tuple[int, ...], result: tuple[int, ...]) -> tuple[Any, ...]:
    """Where an operand of `shape` is read for element `index` of a broadcast `result` shape."""
    tail = index[len(index) - len(shape) :] if shape else ()
    target = result[len(result) - len(shape) :] if shape else ()
    return tuple(0 if extent == 1 and full != 1 else i for i, extent, full in zip(tail, shape, target))


def compute_dtype(dtype: DType) -> DType:
    """The type arithmetic is done in: f32 for f16 and bf16, otherwise the type itself."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def widen(array: Array) -> Array:
    """The array in its arithmetic type (see `compute_dtype`)."""
    return array.astype(compute_dtype(DType.from_numpy(array.dtype)).numpy, copy=False)


def elementwise(fn: ElementFn, raw: bool = False) -> Compute:
    """Lowering of an elementwise op with numpy broadcasting.

    f16 and bf16 operands are handed to `fn` as f32, and its value is rounded to the result's type; `raw` hands them
    over as they are and takes the value as it is.
    """

    def lower(b: Builder, op: Op, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        result = op.result.type

        def body(*index: Expr) -> Expr:
            scalars = []
            for tensor, value in zip(inputs, op.operands):
                scalar = tensor[broadcast_index(index, value.type.shape, result.shape)]
                wide = compute_dtype(value.type.dtype)
                scalars.append(scalar if raw or wide is value.type.dtype else b.cast(scalar, wide))
            computed = fn(b, op, scalars)
            narrow = not raw and compute_dtype(result.dtype) is not result.dtype
            return b.cast(computed, result.dtype) if narrow else computed

        return [b.compute(result, body)]

    return Compute(lower)


def wrapping(b: Builder, dtype: DType, fn: Callable[..., Expr], *operands: Expr) -> Expr:
    """`fn` of integers of 32 bits by way of 64, where nothing overflows; of other numbers as they are.

    Compilers take an overflow of 32 bits as impossible, and compare sums as if they were exact.
    """
    if dtype not in (DType.I32, DType.U32):
        return fn(*operands)
    return b.cast(fn(*(b.cast(x, DType.I64) for x in operands)), dtype)


def elementwise_in_place(op: Op) -> Sequence[int]:
    """Operands with the result's shape and element size: each element is read only for the element over it."""
    result = op.result.type
    shape, dtype = result.shape, result.dtype
    return [
        i
        for i, v in enumerate(op.operands)
        if v.type.shape == shape and (v.type.dtype is dtype or v.type.dtype.itemsize == dtype.itemsize)
    ]


def count(operands: Sequence[TensorType], expected: int) -> None:
    """Raises OpError unless there are `expected` operands."""
    if len(operands) != expected:
        raise OpError(f"expected {expected} operand{'s' if expected != 1 else ''}, got {len(operands)}")


def same_dtype(operands: Sequence[TensorType]) -> DType:
    """The operands' common element type. Raises OpError if they differ."""
    if any(t.dtype is not operands[0].dtype for t in operands):
        raise OpError(f"expected operands of one element type, got {', '.join(str(t) for t in operands)}")
    return operands[0].dtype


def int_attr(attrs: Attrs, name: str) -> int:
    """Integer attribute `name`. Raises OpError if it is absent or something else."""
    value = attrs.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise OpError(f"expected an integer attribute `{name}`, got {value!r}")
    return int(value)


def float_attr(attrs: Attrs, name: str) -> float:
    """Number attribute `name`. Raises OpError if it is absent or something else."""
    value = attrs.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise OpError(f"expected a number as attribute `{name}`, got {value!r}")
    return float(value)


def str_attr(attrs: Attrs, name: str, choices: Sequence[str]) -> str:
    """String attribute `name`, one of `choices`. Raises OpError otherwise."""
    value = attrs.get(name)
    if not isinstance(value, str) or value not in choices:
        raise OpError(f"expected attribute `{name}` to be one of {', '.join(choices)}, got {value!r}")
    return value


def bool_attr(attrs: Attrs, name: str) -> bool:
    """Boolean attribute `name`. Raises OpError if it is absent or something else."""
    value = attrs.get(name)
    if not isinstance(value, bool):
        raise OpError(f"expected attribute `{name}` to be true or false, got {value!r}")
    return value


def dtype_attr(attrs: Attrs, name: str) -> DType:
    """Element type attribute `name`. Raises OpError if it is absent or something else."""
    value = attrs.get(name)
    if not isinstance(value, DType):
        raise OpError(f"expected an element type as attribute `{name}`, got {value!r}")
    return value


def ints_attr(attrs: Attrs, name: str, length: int | None = None) -> tuple[int, ...]:
    """Integer list attribute `name`, of `length` if given. Raises OpError otherwise."""
    value = attrs.get(name)
    if type(value) is tuple and _PLAIN.issuperset(map(type, value)) and length in (None, len(value)):
        return value  # type: ignore[return-value]
    if not isinstance(value, tuple) or any(isinstance(v, bool) or not isinstance(v, (int, np.integer)) for v in value):
        raise OpError(f"expected a list of integers as attribute `{name}`, got {value!r}")
    if length is not None and len(value) != length:
        raise OpError(f"expected {length} integers in attribute `{name}`, got {len(value)}: {list(value)}")
    return tuple(int(v) for v in value)  # type: ignore[arg-type]


def shape_attr(attrs: Attrs, name: str = "shape") -> tuple[int, ...]:
    """Shape attribute `name`: extents of at least 0. Raises OpError otherwise."""
    shape = ints_attr(attrs, name)
    if any(extent < 0 for extent in shape):
        raise OpError(f"expected extents of at least 0 in attribute `{name}`, got {list(shape)}")
    return shape


def axis_attr(attrs: Attrs, rank: int, name: str = "axis") -> int:
    """Axis attribute `name`, in 0 <= axis < rank. Raises OpError otherwise."""
    axis = int_attr(attrs, name)
    if not 0 <= axis < rank:
        raise OpError(f"expected attribute `{name}` in [0, {rank}) for an operand of rank {rank}, got {axis}")
    return axis


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def flat_index(index: Sequence[Any], shape: Sequence[int]) -> Any:
    """Row-major position of element `index`; the Python integer 0 for a scalar."""
    flat: Any = 0
    for i, extent in zip(index, shape):
        flat = flat * extent + i
    return flat


def normalized(b: Builder, index: Expr, extent: int) -> Expr:
    """A data-dependent index with negative values counted from the end, kept inside [0, extent).

    An index out of range is the caller's mistake; clamping makes it read a wrong element instead of foreign memory.
    """
    return clamped(b, b.select(index < 0, index + extent, index), extent)


def clamped(b: Builder, index: Expr, extent: int) -> Expr:
    """An index that data or arithmetic gives, kept inside [0, extent)."""
    return b.maximum(b.minimum(index, extent - 1), 0)


def checked_indices(indices: Array, extent: int) -> Array:
    """Indices with negative values counted from the end. Raises OpError naming one that is out of range."""
    wide = indices.astype(np.int64)
    bad = (wide < -extent) | (wide >= extent)
    if bad.any():
        raise OpError(f"index {wide[bad].flat[0]} is out of range [{-extent}, {extent})")
    return np.where(wide < 0, wide + extent, wide)


def index_operand(type: TensorType) -> None:
    """Raises OpError unless the operand can hold indices."""
    if type.dtype not in (DType.I32, DType.I64):
        raise OpError(f"expected indices of type i32 or i64, got {type}")

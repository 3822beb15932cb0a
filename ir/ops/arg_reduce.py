# SPDX-License-Identifier: Apache-2.0
"""arg_max, arg_min: where along an axis the greatest or least element is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .reduce import reduced_shape
from .shared.axes import axis_of, flag_of, only
from .shared.casts import cast
from .shared.common import widen
from .shared.op_def import Attrs, Decompose, OpDef, Trait, flat, register


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    source = only(operands)
    axis = axis_of(attrs, source)
    flag_of(attrs, "last")
    if source.dtype is DType.BOOL or source.shape[axis] == 0:
        raise OpError(f"expected numbers, one or more along axis {axis}, got {source}")
    return [TensorType(DType.I64, reduced_shape(source.shape, [axis], keepdims=False))]


def _evaluate(inputs: Sequence[Array], attrs: Attrs, largest: bool) -> Sequence[Array]:
    axis, x = int(attrs["axis"]), widen(inputs[0])  # type: ignore[arg-type]
    find: Any = np.argmax if largest else np.argmin
    if attrs["last"]:
        return [np.asarray(x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis), dtype=np.int64)]
    return [np.asarray(find(x, axis=axis), dtype=np.int64)]


def _decompose(b: IRBuilder, op: Op, largest: bool) -> Sequence[Value]:
    """The best element, and the first or last position that has it: of elements that are held, since of recomputed ones, rounded
    apart, none might be equal to it."""
    x = op.operands[0]
    x = cast(b, x, DType.F32) if x.type.dtype is DType.BF16 else x
    x = b.op("hold", [x])
    axis = axis_of(op.attrs, x.type)
    extent, last = x.type.shape[axis], op.attrs["last"]
    best = b.op("reduce_max" if largest else "reduce_min", [x], axes=(axis,), keepdims=True)
    shape = tuple(extent if d == axis else 1 for d in range(x.type.rank))
    position = b.op("iota", [], shape=shape, axis=axis, dtype=DType.I64)
    # The other side of the select is the extreme that never wins against a real position and is a valid one.
    other = b.scalar(0 if last else extent - 1, DType.I64)
    wins = b.op("equal", [x, best])
    if x.type.dtype.is_float:  # with a nan among them the best is nan, which equals nothing
        wins = b.op("logical_or", [wins, b.op("is_nan", [x])])
    where = b.op("select", [wins, position, other])
    return [b.op("reduce_max" if last else "reduce_min", [where], axes=(axis,), keepdims=False)]


def _define(name: str, what: str, spec: str, largest: bool) -> None:
    register(
        OpDef(
            name=name,
            doc=f"Position (i64) of the {what} element along an axis; of a nan, if there is one.\n\n"
            "Attributes `axis`, which the result lacks, and `last`: of equal ones take the last, not the first.",
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html",
            infer=infer,
            evaluate=lambda inputs, attrs, results: _evaluate(inputs, attrs, largest),
            gradient=flat,
            in_place=None,
            view=None,
            slices=None,
            flops=lambda op: 2 * op.operands[0].type.elements,
            lower=Decompose(lambda b, op: _decompose(b, op, largest)),
            library=(),
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_define("arg_max", "greatest", "ArgMax", True)
_define("arg_min", "least", "ArgMin", False)

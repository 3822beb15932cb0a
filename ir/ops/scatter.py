# SPDX-License-Identifier: Apache-2.0
"""scatter_elements, scatter_nd: updates written or combined into a copy of a tensor.

No atomics. Many updates are left to library kernels, which write them over the data where nothing else needs these. Else an op
expands into `scatter_*_combine`, which reduces the updates meant for each element (or finds the last of them) by looking at
all, and elementwise ops that merge that with the data. Of several updates of one element the last one in row-major order wins, which ONNX leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .library.cpu_scatters import SCATTER_ELEMENTS_CPU, SCATTER_ND_CPU
from .library.cuda_scatters import SCATTER_ELEMENTS_CUDA, SCATTER_ND_CUDA
from .shared.casts import cast
from .shared.common import axis_attr, checked_indices, compute_dtype, count, index_operand, int_attr, str_attr, widen
from .shared.derivatives import held_distance, keep_where
from .shared.op_def import Attrs, Decompose, OpDef, no_flops, register

if TYPE_CHECKING:
    from ..build import IRBuilder

REDUCTIONS = ("none", "add", "mul", "max", "min")
_NUMPY: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _check(operands: Sequence[TensorType], attrs: Attrs) -> None:
    count(operands, 3)
    data, indices, updates = operands
    index_operand(indices)
    if updates.dtype is not data.dtype:
        raise OpError(f"expected updates of the data's element type, got {data} and {updates}")
    if str_attr(attrs, "reduction", REDUCTIONS) != "none" and data.dtype is DType.BOOL:
        raise OpError(f"expected numbers for reduction `{attrs['reduction']}`, got {data}")


def infer_elements(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    _check(operands, attrs)
    data, indices, updates = operands
    check_elements(data, indices, updates, axis_attr(attrs, data.rank))
    return [data]


def check_elements(data: TensorType, indices: TensorType, updates: TensorType, axis: int) -> None:
    """Raises OpError unless the indices name places in the data along `axis`, one for each update."""
    if updates.shape != indices.shape:
        raise OpError(f"expected updates of the indices' shape, got {indices} and {updates}")
    if indices.rank != data.rank or any(i > d for k, (i, d) in enumerate(zip(indices.shape, data.shape)) if k != axis):
        raise OpError(f"expected indices within {data} on all axes but {axis}, got {indices}")


def infer_nd(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    _check(operands, attrs)
    data, indices, updates = operands
    check_nd(data, indices, updates)
    return [data]


def check_nd(data: TensorType, indices: TensorType, updates: TensorType) -> None:
    """Raises OpError unless the last axis of the indices names places in the data, one for each slice of updates."""
    depth = indices.shape[-1] if indices.rank else 0
    if not 1 <= depth <= data.rank:
        raise OpError(f"expected 1 to {data.rank} indices per update into {data}, got {indices}")
    if updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        expected = [*indices.shape[:-1], *data.shape[depth:]]
        raise OpError(f"expected updates of shape {expected} for {data} and {indices}, got {updates}")


def evaluate_elements(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    data, indices, updates = inputs
    axis = int_attr(attrs, "axis")
    position: list[Array] = list(np.indices(indices.shape))
    position[axis] = checked_indices(indices, data.shape[axis])
    return [_apply(data, [p.reshape(-1) for p in position], updates.reshape(-1), attrs)]


def evaluate_nd(inputs: Sequence[Array], attrs: Attrs, results: Sequence[TensorType]) -> Sequence[Array]:
    data, indices, updates = inputs
    depth = indices.shape[-1]
    position = [checked_indices(indices[..., k].reshape(-1), data.shape[k]) for k in range(depth)]
    return [_apply(data, position, updates.reshape(position[0].size, *data.shape[depth:]), attrs)]


def _apply(data: Array, position: Sequence[Array], updates: Array, attrs: Attrs) -> Array:
    reduction = str_attr(attrs, "reduction", REDUCTIONS)
    # Sums and products of f16 and bf16 are rounded once, as in `_merge`.
    result = widen(data).copy() if reduction in ("add", "mul") else data.copy()
    if reduction == "none":
        for k in range(len(updates)):
            result[tuple(p[k] for p in position)] = updates[k]
    elif updates.size:
        with np.errstate(all="ignore"):
            _NUMPY[reduction].at(result, tuple(position), updates.astype(result.dtype))
    return np.asarray(result.astype(data.dtype))


def _merge(b: IRBuilder, op: Op, combine: str, **attrs: Any) -> Sequence[Value]:
    data, indices, updates = op.operands
    reduction = str_attr(op.attrs, "reduction", REDUCTIONS)
    if updates.type.elements == 0 or data.type.elements == 0:
        return [b.op("copy", [data])]
    combined = b.op(combine, [indices, updates], shape=data.type.shape, reduction=reduction, **attrs)
    if reduction != "none":
        if combined.type.dtype is not data.type.dtype:
            # Sums and products of f16 and bf16 stay in f32 until they meet the data.
            wide = b.op(reduction, [b.op("cast", [data], to=combined.type.dtype), combined])
            return [b.op("cast", [wide], to=data.type.dtype)]
        return [b.op(reduction, [data, combined])]
    # `combined` holds the position of the winning update, or -1, which reads the last one and is discarded.
    flat = b.op("reshape", [updates], shape=(updates.type.elements,))
    hit = b.op("greater_equal", [combined, b.scalar(0, combined.type.dtype)])
    return [b.op("select", [hit, b.op("gather", [flat, combined], axis=0), data])]


def decompose_elements(b: IRBuilder, op: Op) -> Sequence[Value]:
    return _merge(b, op, "scatter_elements_combine", axis=int_attr(op.attrs, "axis"))


def decompose_nd(b: IRBuilder, op: Op) -> Sequence[Value]:
    return _merge(b, op, "scatter_nd_combine")


def _gradient(b: IRBuilder, op: Op, g: Value | None, combine: str, pick: str, **attrs: Any) -> list[Value | None]:
    """With `none` and `add` it reads the indices only. With `none` an update has the gradient of its place, if no later one took
    that; the data has it where nothing was written. With `add` both have all of it."""
    data, indices, updates = op.operands
    if g is None or not data.type.dtype.is_float:
        return [None, None, None]
    if updates.type.elements == 0 or data.type.elements == 0:
        return [g, None, None]
    reduction = str_attr(op.attrs, "reduction", REDUCTIONS)

    def picked(value: Value) -> Value:
        """For each update, what is at its place."""
        return b.op(pick, [value, indices], **attrs)

    if reduction == "add":
        return [g, None, picked(g)]
    own = {"axis": attrs["axis"]} if "axis" in attrs else {}
    if reduction in ("max", "min"):
        return _gradient_of_extremum(b, op, g, picked, own)
    if reduction == "mul":
        return _gradient_of_product(b, op, g, picked, own)
    winner = b.op(combine, [indices, updates], shape=data.type.shape, reduction="none", **own)
    untouched = b.op("less", [winner, b.scalar(0, winner.type.dtype)])
    count = updates.type.elements
    positions = b.op("iota", [], shape=(count,), axis=0, dtype=winner.type.dtype)
    positions = b.op("reshape", [positions], shape=updates.type.shape)
    won = b.op("equal", [picked(winner), positions])
    return [keep_where(b, untouched, g), None, keep_where(b, won, picked(g))]


def _gradient_of_extremum(
    b: IRBuilder, op: Op, g: Value, picked: Callable[[Value], Value], own: dict[str, Any]
) -> list[Value | None]:
    """The elements that are the extremum, by their distances from the result, share its gradient, as in PyTorch."""
    data, indices, updates = op.operands
    wide = compute_dtype(data.type.dtype)
    apart = held_distance(b, data, op.result), held_distance(b, updates, picked(op.result))
    extreme = b.op(op.name, [apart[0], indices, apart[1]], reduction=op.attrs["reduction"], **own)
    kept, taken = b.op("equal", [apart[0], extreme]), b.op("equal", [apart[1], picked(extreme)])
    hits = [b.op("cast", [hit], to=wide) for hit in (kept, taken)]
    count = b.op(op.name, [hits[0], indices, hits[1]], reduction="add", **own)
    share = cast(b, b.op("div", [cast(b, g, wide), count]), data.type.dtype)
    return [keep_where(b, kept, share), None, keep_where(b, taken, picked(share))]


def _gradient_of_product(
    b: IRBuilder, op: Op, g: Value, picked: Callable[[Value], Value], own: dict[str, Any]
) -> list[Value | None]:
    """The gradient times the product of a place's other factors: that of all factors but zeros, over one's own, unless
    another is zero."""
    data, indices, updates = op.operands
    wide = compute_dtype(data.type.dtype)
    factors = [cast(b, v, wide) for v in (data, updates)]
    zeros = [b.op("equal", [v, b.scalar(0, wide)]) for v in factors]
    others = [b.op("select", [zero, b.scalar(1, wide), v]) for zero, v in zip(zeros, factors)]
    ones = [b.op("cast", [zero], to=wide) for zero in zeros]
    product = b.op(op.name, [others[0], indices, others[1]], reduction="mul", **own)
    count = b.op(op.name, [ones[0], indices, ones[1]], reduction="add", **own)
    whole = b.op("mul", [cast(b, g, wide), product])
    found: list[Value | None] = []
    for v, one, total, there in (
        (others[0], ones[0], whole, count),
        (others[1], ones[1], picked(whole), picked(count)),
    ):
        alone = b.op("equal", [there, one])  # Neither another zero, nor, where it is not one itself, any.
        part = keep_where(b, alone, b.op("div", [total, v]))
        found.append(cast(b, part, data.type.dtype))
    return [found[0], None, found[1]]


def gradient_elements(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    axis = int_attr(op.attrs, "axis")
    return _gradient(b, op, grads[0], "scatter_elements_combine", "gather_elements", axis=axis)


def gradient_nd(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    return _gradient(b, op, grads[0], "scatter_nd_combine", "gather_nd", batch_dims=0)


_DOC = (
    "Operands data, indices (i32 or i64, negative ones count from the end) and updates; the result has data's type.\n"
    "Attribute `reduction`: `none` writes the update, `add`, `mul`, `max` and `min` combine it with what is there. Of the "
    "gradient of an extremum all elements that are equal to it have the same share."
)

register(
    OpDef(
        name="scatter_elements",
        doc="Each update goes to its own place with the coordinate on `axis` replaced by its index.\n\n" + _DOC,
        spec="https://onnx.ai/onnx/operators/onnx__ScatterElements.html",
        infer=infer_elements,
        evaluate=evaluate_elements,
        gradient=gradient_elements,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=no_flops,
        lower=Decompose(decompose_elements),
        library=(SCATTER_ELEMENTS_CPU, SCATTER_ELEMENTS_CUDA),
    )
)

register(
    OpDef(
        name="scatter_nd",
        doc="Slices of updates go to the index tuples along the last axis of indices.\n\n" + _DOC,
        spec="https://onnx.ai/onnx/operators/onnx__ScatterND.html",
        infer=infer_nd,
        evaluate=evaluate_nd,
        gradient=gradient_nd,
        in_place=lambda op: (0,),
        view=None,
        slices=None,
        flops=no_flops,
        lower=Decompose(decompose_nd),
        library=(SCATTER_ND_CPU, SCATTER_ND_CUDA),
    )
)

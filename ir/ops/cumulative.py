# SPDX-License-Identifier: Apache-2.0
"""cumsum, cumprod: running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..build import IRBuilder
from ..core import Array, Op, Value
from ..errors import OpError
from ..types import DType, TensorType
from .library.cpu_sort_scan import CUMPROD_CPU, CUMSUM_CPU
from .library.cuda_sort_scan import CUMPROD_CUDA, CUMSUM_CUDA
from .shared.axes import axis_of, flag_of, only
from .shared.casts import HALF, cast
from .shared.derivatives import keep_where
from .shared.op_def import Attrs, Builder, Compute, Expr, GradientFn, LibraryKernel, OpDef, Tensor, Trait, register

LONGEST = 512
"""The longest axis along which one kernel makes a running sum, in time that grows with its square."""
BLOCK = 128
"""Elements of the blocks of longer ones. A sum of so many f32 is made in f64 on a CPU."""


def infer(operands: Sequence[TensorType], attrs: Attrs) -> Sequence[TensorType]:
    source = only(operands)
    axis_of(attrs, source)
    flag_of(attrs, "exclusive")
    flag_of(attrs, "reverse")
    if source.dtype is DType.BOOL or source.dtype in HALF:
        raise OpError(f"expected f64, f32 or integers (half precision is cast to f32 first), got {source}")
    return [source]


def evaluate(inputs: Sequence[Array], attrs: Attrs, run: Any, start: int) -> Sequence[Array]:
    x, axis = inputs[0], int(attrs["axis"])  # type: ignore[arg-type]
    if attrs["reverse"]:
        x = np.flip(x, axis)
    found: Array = run(x, axis=axis, dtype=x.dtype)
    if attrs["exclusive"]:
        first = np.full_like(np.take(found, range(min(1, x.shape[axis])), axis=axis), start)
        found = np.concatenate([first, np.take(found, range(max(0, x.shape[axis] - 1)), axis=axis)], axis=axis)
    return [np.flip(found, axis) if attrs["reverse"] else found]


def lower(b: Builder, op: Op, inputs: Sequence[Tensor], kind: str, start: int) -> Sequence[Tensor]:
    type = op.result.type
    axis, exclusive, reverse = axis_of(op.attrs, type), op.attrs["exclusive"], op.attrs["reverse"]

    def body(*index: Expr) -> Expr:
        i = index[axis]

        def element(k: Expr) -> Expr:
            low, high = (i, k) if reverse else (k, i)
            position = tuple(k if d == axis else p for d, p in enumerate(index))
            counts = low < high if exclusive else low <= high
            return b.select(counts, inputs[0][position], b.const(start, type.dtype))

        return b.reduce(kind, [type.shape[axis]], element)

    return [b.compute(type, body)]


def sum_of_blocks(b: IRBuilder, op: Op) -> Sequence[Value] | None:
    """A running sum along a long axis: inside of blocks, to which the running sum of the blocks' sums is added.

    The work is the extent times `BLOCK` and not its square. The blocks' sums of f32 are made and added in f64, so that
    the error does not grow with the extent.
    """
    (x,) = op.operands
    type, axis = op.result.type, axis_of(op.attrs, op.result.type)
    extent = type.shape[axis]
    if extent <= LONGEST or not type.elements:
        return None
    count = -(-extent // BLOCK)
    if count * BLOCK > extent:
        high = tuple(count * BLOCK - extent if a == axis else 0 for a in range(type.rank))
        x = b.op("pad", [x], low=(0,) * type.rank, high=high, mode="constant", value=0.0)
    blocks = b.op("reshape", [x], shape=(*type.shape[:axis], count, BLOCK, *type.shape[axis + 1 :]))
    wide = DType.F64 if type.dtype is DType.F32 else type.dtype
    totals = b.op("reduce_sum", [cast(b, blocks, wide)], axes=(axis + 1,), keepdims=True)
    before = b.op("cumsum", [totals], axis=axis, exclusive=True, reverse=op.attrs["reverse"])
    inside = b.op("cumsum", [blocks], axis=axis + 1, exclusive=op.attrs["exclusive"], reverse=op.attrs["reverse"])
    found = cast(b, b.op("add", [cast(b, inside, wide), before]), type.dtype)
    found = b.op("reshape", [found], shape=x.type.shape)
    if count * BLOCK > extent:
        found = b.op("slice", [found], starts=(0,) * type.rank, stops=type.shape, steps=(1,) * type.rank)
    return [found]


def gradient_sum(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Each element counts in all sums from its own on."""
    (g,) = grads
    return [None if g is None or not g.type.dtype.is_float else _from_the_end(b, op, g)]


def _from_the_end(b: IRBuilder, op: Op, x: Value) -> Value:
    """The running sum in the other direction."""
    return b.op("cumsum", [x], **{**op.attrs, "reverse": not op.attrs["reverse"]})


def gradient_product(b: IRBuilder, op: Op, grads: Sequence[Value | None]) -> Sequence[Value | None]:
    """Up to the first zero, the sum of g y from an element on, divided by the element; at the first zero the same of
    the products without it; beyond, every product is zero whatever the element."""
    (g,) = grads
    if g is None or not g.type.dtype.is_float:
        return [None]
    x, dtype = op.operands[0], g.type.dtype
    zero, one = b.scalar(0, dtype), b.scalar(1, dtype)
    is_zero = b.op("equal", [x, zero])
    seen = b.op("cumsum", [b.op("select", [is_zero, one, zero])], **{**op.attrs, "exclusive": False})
    is_first = b.op("logical_and", [is_zero, b.op("equal", [seen, one])])
    without = b.op("cumprod", [b.op("select", [is_first, one, x])], **op.attrs)
    at_zero = keep_where(b, is_first, _from_the_end(b, op, b.op("mul", [g, without])))
    total = _from_the_end(b, op, b.op("mul", [g, op.result]))
    before = b.op("div", [total, b.op("select", [is_zero, one, x])])
    return [b.op("select", [b.op("equal", [seen, zero]), before, at_zero])]


def _define(
    name: str,
    what: str,
    spec: str,
    run: Any,
    kind: str,
    start: int,
    gradient: GradientFn,
    parts: Any,
    time: str,
    library: Sequence[LibraryKernel],
) -> None:
    register(
        OpDef(
            name=name,
            doc=f"Running {what} along an axis.\n\n"
            "Attributes `axis`, `exclusive` (an element's own value is left out) and `reverse` (from the end).\n"
            f"Half precision is rejected: cast to f32 first. {time}",
            spec=f"https://onnx.ai/onnx/operators/onnx__{spec}.html",
            infer=infer,
            evaluate=lambda inputs, attrs, results: evaluate(inputs, attrs, run, start),
            gradient=gradient,
            in_place=None,
            view=None,
            slices=None,
            flops=lambda op: op.result.type.elements * op.result.type.shape[axis_of(op.attrs, op.result.type)],
            lower=Compute(lambda b, op, inputs: lower(b, op, inputs, kind, start), parts),
            library=library,
            traits=frozenset({Trait.REDUCTION}),
        )
    )


_define(
    "cumsum",
    "sum",
    "CumSum",
    np.cumsum,
    "sum",
    0,
    gradient_sum,
    sum_of_blocks,
    "The generated kernels cut long axes into blocks.",
    (CUMSUM_CPU, CUMSUM_CUDA),
)
# Not of blocks: where a product of a block overflows, after a zero, the product of both is nan and not zero.
_define(
    "cumprod",
    "product",
    "CumProd",
    np.cumprod,
    "prod",
    1,
    gradient_product,
    None,
    "The generated kernel is quadratic in the axis's extent, the libraries' are linear.",
    (CUMPROD_CPU, CUMPROD_CUDA),
)

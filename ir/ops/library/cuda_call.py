# SPDX-License-Identifier: Apache-2.0
"""An op or a fused group as one call of a CUDA library: the op, then a bias, a residual and a ReLU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core import Op, Value
from ...types import DType, TensorType
from ..shared.casts import HALF

BIASED = ("conv", "conv_channels_last", "conv_transpose", "conv_transpose_channels_last")
"""Ops that take a bias as their third operand."""

MAX_ELEMENTS = 2**31 - 1
"""What cuDNN's descriptors count in."""


@dataclass(frozen=True)
class Call:
    """An op, or a fused group that begins with one, as a library kernel computes it: `scale` times the op's result, rounded
    to `result`'s element type, plus bias and residual, then ReLU. The op may be the first of several products of equal
    shapes but for their depth, which are added up."""

    main: Op
    result: TensorType
    bias: int | None = None
    """Position of the bias among the operands of the op or group."""
    residual: int | None = None
    """Position of what is added element by element."""
    relu: bool = False
    scale: int | None = None
    """Position of a scalar."""
    products: int = 1
    """Their operands are the first ones, two of each."""

    @property
    def plain(self) -> bool:
        """Whether it is no more than the main op."""
        return self == Call(self.main, self.result)


def call_of(op: Op) -> Call | None:
    """The call that computes an op or group; None for a group that does something else after its first op.

    A group may end by giving the sum to the state that is its residual.
    """
    if op.region is None:
        own = 2 if len(op.operands) == 3 and op.name in BIASED else None
        return Call(op, op.results[0].type, own)
    main, params = op.region.ops[0], op.region.params
    if len(op.results) != 1 or any(v not in params for v in main.operands) or main.operands[:2] != params[:2]:
        return None
    bias: Value | None = main.operands[2] if len(main.operands) == 3 else None
    residual: Value | None = None
    scale: Value | None = None
    relu = assigned = False
    products, total, rest = _sum_of_products(op.region.ops, params)
    factors = params[: 2 * products]
    current = total
    for step in rest:
        if relu or assigned or current not in step.operands:
            return None
        if step.name == "cast":
            first = residual is None and (bias is None or bias in main.operands) and current.type == main.result.type
            if not first or step.result.type.dtype is not main.operands[0].type.dtype:
                return None
            current = step.result
            continue
        if step.result.type != current.type:
            return None
        other = step.operands[1 - step.operands.index(current)] if len(step.operands) == 2 else None
        if step.name == "relu":
            relu = True
        elif step.name == "assign" and other is residual is not None and step.operands[1] is current:
            if residual in factors:
                return None
            assigned = True
        elif step.name not in ("add", "mul") or other is None or other is current or other not in params:
            return None
        elif step.name == "mul":
            if main.name != "matmul" or not is_scalar(other.type) or current is not total:
                return None
            scale = other
        elif main.name == "matmul" and bias is None and is_row(other.type, current.type):
            bias = other
        elif (
            main.name == "conv" and bias is None and current is not main.result and is_column(other.type, current.type)
        ):
            bias = other
        elif main.name == "conv_channels_last" and bias is None and is_row(other.type, current.type):
            bias = other
        elif other.type == current.type and residual is None:
            residual = other
        else:
            return None
        current = step.result
    if op.region.returns != [current]:
        return None
    added = (_position(params, bias), _position(params, residual))
    return Call(main, op.result.type, *added, relu, _position(params, scale), products)


def _sum_of_products(ops: Sequence[Op], params: Sequence[Value]) -> tuple[int, Value, Sequence[Op]]:
    """How many products ops begin with that are added up, each of the next two parameters; their sum, and the other ops."""
    main = ops[0]
    count, total, rest = 1, main.result, ops[1:]
    while main.name == "matmul" and len(rest) > 1:
        product, added = rest[:2]
        alike = product.name == "matmul" and product.attrs == main.attrs and product.result.type == main.result.type
        factors = list(params[2 * count : 2 * count + 2])
        if not alike or product.operands != factors or added.name != "add" or added.operands != [total, product.result]:
            break
        count, total, rest = count + 1, added.result, rest[2:]
    return count, total, rest


def is_scalar(type: TensorType) -> bool:
    """Whether a tensor has one element and so scales another as a whole."""
    return type.elements == 1 and type.rank == 0


def _position(params: Sequence[Value], value: Value | None) -> int | None:
    return None if value is None else params.index(value)


def is_row(type: TensorType, result: TensorType) -> bool:
    """Whether a tensor is one row that is added to every row of `result`."""
    return type.elements == result.shape[-1] and type.rank > 0 and type.shape[-1] == result.shape[-1]


def is_column(type: TensorType, result: TensorType) -> bool:
    """Whether a tensor is one number per channel that is added to images."""
    return type.shape == (result.shape[1], *[1] * (result.rank - 2))


def typed(op: Op, call: Call) -> bool:
    """Whether the elements are of types that the libraries have together: factors all f32 or halves, whose sums are f32; what
    is added of the result's type; a scale f32."""
    factors, result = call.main.operands[0].type.dtype, call.result.dtype
    if factors not in (DType.F32, *HALF) or result not in (DType.F32, factors):
        return False
    if call.products > 1 and result is not DType.F32:
        return False  # The sum so far is kept in the result.
    for n, value in enumerate(op.operands):
        wanted = factors if n < 2 * call.products else DType.F32 if n == call.scale else result
        if value.type.dtype is not wanted:
            return False
    return all(0 < v.type.elements <= MAX_ELEMENTS for v in (*op.operands, *op.results))


def optional(position: int | None) -> int:
    """A position as the kernels take it: -1 for none."""
    return -1 if position is None else position


def tf32(op: Op) -> int:
    """1 where factors are rounded to TF32, else 0."""
    return int(op.plan.precision == "tf32")


def over_residual(op: Op) -> Sequence[int]:
    """The library reads an element of the residual when it writes that of the result."""
    call = call_of(op)
    if call is None or call.residual is None or call.residual < len(call.main.operands) + 2 * call.products - 2:
        return ()  # None, or one that a product itself reads.
    return (call.residual,)

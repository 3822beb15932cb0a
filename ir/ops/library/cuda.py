# SPDX-License-Identifier: Apache-2.0
"""The CUDA library kernels for convolutions, their gradients (cuDNN) and matrix products (cuBLASLt), in f32, f16 and bf16.

Products of f32 are computed in f32, or with factors rounded to TF32 where the op's attribute `precision` says `tf32`; products
of halves are added up in f32, and rounded where the group goes on with a cast.

The kernels live in `libmemc_core` (`cpp/exports/cuda_kernels.cc`), which registers them when it is loaded and loads the
libraries when they are first called. Some also take fused groups: the op, then a bias, a residual and a ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core import Op, Value
from ...types import DType, TensorType
from ..rules.base import LibraryKernel
from ..rules.casts import HALF
from ..rules.window import Window, window

MAX_ELEMENTS = 2**31 - 1
"""What cuDNN's descriptors count in."""

MOST_WORKSPACE = 1 << 30
"""Bytes beyond which no algorithm for one convolution is worth its memory; measured, Winograd's gradient of weights takes
up to 870 MB."""

MOST_SPLIT = 1 << 28
"""The same for one product."""


SMALL_WORKSPACE = 1 << 14
"""Bytes that the library's algorithms may take for indices; measured, 1 to 4 KiB."""

SHARED_SUMS = 1 << 23
"""Bytes that blocks sum up a gradient of weights in halves in; measured, 16 to 300 for each weight, 6 MB at most."""

USEFUL_WORKSPACE = 1 << 25
"""Bytes that small convolutions can use too; measured, up to 19 MB for the only deterministic algorithm."""


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
        own = 2 if len(op.operands) == 3 and op.name in ("conv", "conv_transpose") else None
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


def _typed(op: Op, call: Call) -> bool:
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


def _optional(position: int | None) -> int:
    return -1 if position is None else position


def _tf32(op: Op) -> int:
    return int(op.plan.precision == "tf32")


# Matrix products


def _matmul_supports(op: Op) -> bool:
    call = call_of(op)
    if call is None or not _typed(op, call):
        return False
    batch = math.prod(call.result.shape[:-2])
    return all(math.prod(v.type.shape[:-2]) in (1, batch) for v in call.main.operands)


def _matmul_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, bias, relu, transpose_a, transpose_b, residual, scale, tf32, and of several products their number."""
    call = call_of(op)
    assert call is not None
    transposed = (int(bool(call.main.attrs.get(name, False))) for name in ("transpose_a", "transpose_b"))
    last = (_optional(call.residual), _optional(call.scale), _tf32(op), *([call.products] if call.products > 1 else []))
    return (len(op.operands), _optional(call.bias), int(call.relu), *transposed, *last)


def _over_residual(op: Op) -> Sequence[int]:
    """The library reads an element of the residual when it writes that of the result."""
    call = call_of(op)
    if call is None or call.residual is None or call.residual < len(call.main.operands) + 2 * call.products - 2:
        return ()  # None, or one that a product itself reads.
    return (call.residual,)


def _matmul_workspace(op: Op) -> tuple[int, int]:
    """Least and most bytes: of use where a product is split along its depth, which takes a copy of the result for each
    part."""
    return (0, min(MOST_SPLIT, 32 * 4 * op.results[0].type.elements))


# Convolutions


def _group(op: Op) -> int:
    group = op.attrs["group"]
    assert isinstance(group, int)
    return group


def _weights(main: Op) -> TensorType:
    return main.result.type if main.name == "conv_grad_weight" else main.operands[1].type


def _images(main: Op) -> tuple[TensorType, TensorType]:
    """x and y of the convolution that an op is, or is a gradient of."""
    if main.name == "conv":
        return main.operands[0].type, main.result.type
    if main.name == "conv_transpose":
        return main.result.type, main.operands[0].type
    return main.operands[0].type, main.operands[1].type


def _window(main: Op) -> Window:
    weights = _weights(main)
    return window(main.attrs, weights.shape[2:], weights.rank - 2)


def fits(view: Window, image: Sequence[int], out: Sequence[int]) -> bool:
    """Whether padding by `low` on both sides gives the same windows: the library pads both sides alike."""
    return all(
        size + 2 * low >= d * (k - 1) + 1 and (size + 2 * low - d * (k - 1) - 1) // s + 1 == n
        for size, low, d, k, s, n in zip(image, view.low, view.dilations, view.kernel, view.strides, out)
    )


def _conv_supports(op: Op) -> bool:
    call = call_of(op)
    if call is None or not _typed(op, call) or call.result.dtype is not call.main.operands[0].type.dtype:
        return False
    x, y = _images(call.main)
    return x.rank in (3, 4, 5) and fits(_window(call.main), x.shape[2:], y.shape[2:])


def _forward_supports(op: Op) -> bool:
    """A group must end as the library's own kernel does: bias (zeros if there is none), residual if any, ReLU; or do no more
    than round."""
    call = call_of(op)
    if call is None or not _conv_supports(op) or is_depthwise(call.main):
        return False
    return op.region is None or call.relu or (call.bias is None and call.residual is None)


def _plain_supports(op: Op) -> bool:
    """An op alone, rounded if it is of halves."""
    call = call_of(op)
    if call is None or call.residual is not None or call.relu or (op.region is not None and call.bias is not None):
        return False
    return _conv_supports(op)


def _weight_supports(op: Op) -> bool:
    call = call_of(op)
    return call is not None and _plain_supports(op) and not is_depthwise(call.main)


def is_depthwise(main: Op) -> bool:
    """Whether every group has one input channel: few products for each element, which generated code does faster."""
    return _group(main) > 1 and _weights(main).shape[1] == 1


def _conv_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, bias, residual, relu, tf32, group, axes, then strides, pads and dilations of each axis."""
    call = call_of(op)
    assert call is not None
    view = _window(call.main)
    ends = (_optional(call.bias), _optional(call.residual), int(call.relu), _tf32(op))
    return (len(op.operands), *ends, _group(call.main), view.rank, *view.strides, *view.low, *view.dilations)


def _conv_workspace(op: Op) -> tuple[int, int]:
    """Least and most bytes. Of use up to the matrix of all patches, or all tiles transformed; below the least there may
    be no deterministic algorithm for a gradient: indices take some KiB, and a gradient of weights is summed up in a
    copy (with, measured, up to 6 % more) from copies of at least one image."""
    call = call_of(op)
    assert call is not None
    least = 0 if call.main.name == "conv" else SMALL_WORKSPACE
    x, y = _images(call.main)
    weights = _weights(call.main)
    if call.main.operands[0].type.dtype in HALF:
        return _half_workspace(call.main.name, x, y, weights)
    if call.main.name == "conv_grad_weight":
        least += weights.nbytes * 17 // 16 + (x.nbytes + y.nbytes) // x.shape[0]
    patches = y.shape[0] * math.prod(y.shape[2:]) * math.prod(weights.shape[1:]) * _group(call.main)
    return (least, max(least, min(MOST_WORKSPACE, max(4 * patches, USEFUL_WORKSPACE))))


def _half_workspace(name: str, x: TensorType, y: TensorType, weights: TensorType) -> tuple[int, int]:
    """The same for halves. Tensor cores take channels last, in multiples of eight: the library copies what it reads to that,
    and its result from that. Least are copies of a part of the images (`kParts` of cuda_conv.cc), but for gradients of
    weights, which would be rounded at each part, and which are summed up in f32 by blocks that share them out."""

    def padded(type: TensorType, axes: Sequence[int]) -> int:
        return math.prod((n + 7) // 8 * 8 if d in axes else n for d, n in enumerate(type.shape))

    images = 2 * (padded(x, (1,)) + padded(y, (1,)))
    kernel = padded(weights, (0, 1))
    copies = SMALL_WORKSPACE + 4 * kernel
    if name == "conv_grad_weight":
        copies += min(SHARED_SUMS, 512 * kernel)
        parts = 1
    else:
        parts = math.gcd(x.shape[0], 32)
    return (copies + images // parts, max(copies + images, USEFUL_WORKSPACE))


MATMUL_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.matmul",
    supports=_matmul_supports,
    scalars=_matmul_scalars,
    workspace=_matmul_workspace,
    groups=True,
    in_place=_over_residual,
)
"""Matrix products, one or a batch, times a scalar, then a bias, a residual and ReLU."""

CONV_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv",
    supports=_forward_supports,
    scalars=_conv_scalars,
    workspace=_conv_workspace,
    groups=True,
    in_place=_over_residual,
)
"""Convolution over one to three spatial axes, then a bias, a residual and ReLU."""

CONV_TRANSPOSE_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_transpose",
    supports=_plain_supports,
    scalars=_conv_scalars,
    workspace=_conv_workspace,
    groups=True,
)
"""Transposed convolution: the gradient of convolutions in their data. A group only rounds, as below."""

CONV_GRAD_WEIGHT_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_grad_weight",
    supports=_weight_supports,
    scalars=_conv_scalars,
    workspace=_conv_workspace,
    groups=True,
)
"""The gradient of convolutions in their weights."""


# Attention

MOST_COLUMNS = 128
"""The most columns of a head that the kernels have room for."""


def _attention_supports(op: Op) -> bool:
    types = [v.type for v in (*op.operands, *op.results)]
    q, v = types[0], types[2]
    return (
        2 <= q.rank <= 4
        and max(q.shape[-1], v.shape[-1]) <= MOST_COLUMNS
        and all(t.dtype is DType.F32 and 0 < t.elements <= MAX_ELEMENTS for t in types)
    )


def _attention_scalars(op: Op) -> Sequence[int | float]:
    """Axis and scale."""
    axis, scale = op.attrs["axis"], op.attrs["scale"]
    assert isinstance(axis, int) and isinstance(scale, (int, float))
    return (axis, float(scale))


ATTENTION_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.attention",
    supports=_attention_supports,
    scalars=_attention_scalars,
    workspace=None,
)
"""Attention of f32 by kernels of memc's own: the scores are never stored."""

# SPDX-License-Identifier: Apache-2.0
"""The CPU library kernels that may take the place of generated code for convolutions, `matmul` and their gradients.

The kernels live in `libmemc_core` (`cpp/include/memc/cpu_kernels.h`), which registers them when it is loaded. Sizes
here and there must agree; `tests/cpp` holds them against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memc.ir.core import Op
from memc.ir.ops.base import LibraryKernel
from memc.ir.types import DType, TensorType

STACK_PANEL = 16 * 1024
"""Elements (f32) of the panel of patches that conv2d makes on each thread's stack without a (larger) workspace."""
MOST_PANEL = 128 * 1024
"""Elements (f32) of all threads' panels beyond which conv2d does not get faster (measured: within 3 %)."""
MAX_EXTENT = 2**31 - 1
"""The largest matrix extent that OpenBLAS takes."""


def _all_f32(op: Op) -> bool:
    return all(v.type.dtype is DType.F32 for v in (*op.operands, *op.results))


def _matmul_supports(op: Op) -> bool:
    matrices = (*op.operands, op.result)
    return _all_f32(op) and all(math.prod(v.type.shape[:-1]) <= MAX_EXTENT for v in matrices)


def _matmul_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, transpose_a, transpose_b, activation (0: none)."""
    return (
        len(op.operands),
        int(bool(op.attrs.get("transpose_a", False))),
        int(bool(op.attrs.get("transpose_b", False))),
        0,
    )


def _integers(op: Op, name: str) -> tuple[int, ...]:
    values = op.attrs[name]
    assert isinstance(values, tuple)
    return tuple(int(v) for v in values)  # type: ignore[arg-type]


def _group(op: Op) -> int:
    group = op.attrs["group"]
    assert isinstance(group, int)
    return group


def _conv_supports(op: Op) -> bool:
    x, w = op.operands[0].type, op.operands[1].type
    if not _all_f32(op) or x.rank not in (3, 4) or min(_integers(op, "pads")) < 0:
        return False
    extents = (_depth(op), _pixels(op), math.prod(x.shape[2:]), w.shape[0])
    return max(extents) <= MAX_EXTENT


def _depthwise_supports(op: Op) -> bool:
    return _conv_supports(op) and op.operands[1].type.shape[1] == 1 and _group(op) > 1


def _conv_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, group, activation (0: none), strides, pads before, dilations; height first, 1 if there is none."""
    flat = op.operands[0].type.rank == 3
    strides, dilations = _integers(op, "strides"), _integers(op, "dilations")
    before = _integers(op, "pads")[: len(strides)]
    if flat:
        strides, dilations, before = (1, *strides), (1, *dilations), (0, *before)
    return (len(op.operands), _group(op), 0, *strides, *before, *dilations)


def _depth(op: Op) -> int:
    """Terms of one result element: rows of the patch matrix."""
    return math.prod(op.operands[1].type.shape[1:])


def _pixels(op: Op) -> int:
    """Result elements of one image and channel: columns of the patch matrix."""
    return math.prod(op.result.type.shape[2:])


def is_product(op: Op) -> bool:
    """Whether the input itself is the patch matrix: a 1x1 convolution with stride 1 and no padding."""
    return (
        all(k == 1 for k in op.operands[1].type.shape[2:])
        and all(s == 1 for s in _integers(op, "strides"))
        and all(p == 0 for p in _integers(op, "pads"))
    )


def _conv_workspace(op: Op) -> tuple[int, int]:
    """Bytes for panels of the patch matrix (f32); of no use for a plain product or a matrix that fits the stack."""
    matrix = _depth(op) * _pixels(op)
    if is_product(op) or matrix <= STACK_PANEL or op.result.type.elements == 0:
        return (0, 0)
    # At most one matrix for each product that may run at the same time: images and groups are independent, and a single
    # product is shared out to threads, each with a panel of its own.
    useful = matrix * max(op.result.type.shape[0] * _group(op), 4)
    return (0, 4 * min(MOST_PANEL, useful))


def _backward_shapes(op: Op) -> tuple[TensorType, TensorType]:
    """The gradient in a convolution's result, and the weights."""
    if op.name == "conv_transpose":
        return op.operands[0].type, op.operands[1].type
    return op.operands[1].type, op.result.type


def _backward_supports(op: Op) -> bool:
    g, w = _backward_shapes(op)
    if not _all_f32(op) or g.rank not in (3, 4):
        return False
    image = op.result.type if op.name == "conv_transpose" else op.operands[0].type
    extents = (math.prod(w.shape[1:]), math.prod(g.shape[2:]), math.prod(image.shape[2:]), w.shape[0])
    return max(extents) <= MAX_EXTENT


def _backward_workspace(op: Op) -> tuple[int, int]:
    """Bytes for panels of the patch matrix, of use where one is larger than what each thread has on its stack."""
    g, w = _backward_shapes(op)
    matrix = math.prod(w.shape[1:]) * math.prod(g.shape[2:])
    return (0, 0) if matrix <= STACK_PANEL else (0, 4 * min(MOST_PANEL, 4 * matrix))


def _gather_supports(op: Op) -> bool:
    return op.operands[1].type.dtype is DType.F32 and len(op.operands) == 2


def _gather_scalars(op: Op) -> Sequence[int | float]:
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    return (axis,)


MATMUL_CPU = LibraryKernel(
    target="llvm", symbol="memc.cpu.matmul", supports=_matmul_supports, scalars=_matmul_scalars, workspace=None
)
"""f32 matrix products with broadcasting, on OpenBLAS."""

CONV2D_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.conv2d",
    supports=_conv_supports,
    scalars=_conv_scalars,
    workspace=_conv_workspace,
)
"""f32 convolution over one or two spatial axes, as patches and matrix products."""

DEPTHWISE_CONV2D_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.depthwise_conv2d",
    supports=_depthwise_supports,
    scalars=_conv_scalars,
    workspace=None,
)
"""The same with one input channel per group, directly. Prefer it where it applies."""

CONV2D_GRAD_WEIGHT_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.conv2d_grad_weight",
    supports=_backward_supports,
    scalars=_conv_scalars,
    workspace=_backward_workspace,
)
"""The gradient of f32 convolutions in their weights: products with patches, added up over the images."""

CONV2D_TRANSPOSE_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.conv2d_transpose",
    supports=_backward_supports,
    scalars=_conv_scalars,
    workspace=_backward_workspace,
)
"""f32 transposed convolution, the gradient of convolutions in their data: products, added to where patches came from."""

GATHER_GRAD_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.gather_grad",
    supports=_gather_supports,
    scalars=_gather_scalars,
    workspace=None,
)
"""Rows of f32 added up by index, each once."""

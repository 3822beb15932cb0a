# SPDX-License-Identifier: Apache-2.0
"""The CPU library kernels that may take the place of generated code for convolutions, `matmul` and their gradients.

The kernels live in `libmemc_core` (`cpp/kernels/cpu_kernels.h`), which registers them when it is loaded. Sizes
here and there must agree; `tests/cpp` holds them against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memc.ir.core import Op
from memc.ir.ops.shared.common import float_attr
from memc.ir.ops.shared.op_def import LibraryKernel, main_op
from memc.ir.ops.shared.packing import PANEL_COLUMNS, ColumnPanels, RowPanels
from memc.ir.types import DType, TensorType

STACK_PANEL = 16 * 1024
"""Elements (f32) of the panel of patches that conv2d makes on each thread's stack without a (larger) workspace."""
MOST_PANEL = 128 * 1024
"""Elements (f32) of all threads' panels beyond which conv2d does not get faster (measured: within 3 %)."""
MAX_EXTENT = 2**31 - 1
"""The largest matrix extent that OpenBLAS takes."""


@dataclass(frozen=True)
class Epilogue:
    """What a kernel does to the sums of a convolution or product before it stores them."""

    bias: int | None = None
    """Position, among the operands of the op or group, of one number for each channel or column."""
    add: int | None = None
    """Position of what is added element by element, the last operand."""
    low: float = -math.inf
    high: float = math.inf
    """Limits of the result, applied last. NaN stays NaN."""

    @property
    def is_limited(self) -> bool:
        return self.low > -math.inf or self.high < math.inf


def epilogue(op: Op) -> Epilogue | None:
    """What an op, or a group after its first op, adds and limits: bias, residual, then relu or clip, in this order.

    None for a group that does anything else.
    """
    main = main_op(op)
    found = Epilogue(bias=2 if len(main.operands) == 3 else None)
    if op.region is None:
        return found
    params, current = list(op.region.params), main.result
    if len(op.results) != 1 or list(main.operands) != params[: len(main.operands)]:
        return None
    for step in op.region.ops[1:]:
        operands = list(step.operands)
        if current not in operands or step.result.type != main.result.type or found.is_limited:
            return None
        operands.remove(current)
        if step.name == "relu":
            found = replace(found, low=0.0)
        elif step.name == "clip":
            found = replace(found, low=float_attr(step.attrs, "min"), high=float_attr(step.attrs, "max"))
        elif step.name == "add" and operands[0] in params[len(main.operands) :] and found.add is None:
            position = params.index(operands[0])
            if operands[0].type == current.type and position == len(params) - 1:
                found = replace(found, add=position)
            elif _is_column_bias(main, operands[0].type) and found.bias is None and position == 2:
                found = replace(found, bias=position)
            else:
                return None
        else:
            return None
        current = step.result
    return found


def _is_column_bias(main: Op, type: TensorType) -> bool:
    """Whether a matrix product plus such a tensor adds the same row to all rows."""
    return main.name == "matmul" and type.elements == main.result.type.shape[-1] == (type.shape or (0,))[-1]


def _over_residual(op: Op) -> Sequence[int]:
    """The residual is read just before the same element is written."""
    found = epilogue(op)
    return () if found is None or found.add is None else (found.add,)


def _ending(op: Op) -> Sequence[int | float]:
    """Whether operand 2 is a bias, and the limits of the result."""
    found = epilogue(op)
    assert found is not None
    return (int(found.bias is not None), found.low, found.high)


def _all_f32(op: Op) -> bool:
    return all(v.type.dtype is DType.F32 for v in (*op.operands, *op.results))


def _matmul_supports(op: Op) -> bool:
    matrices = (*op.operands, op.result)
    if not _all_f32(op) or epilogue(op) is None:
        return False
    return all(math.prod(v.type.shape[:-1]) <= MAX_EXTENT for v in matrices)


def _packed_matmul_supports(op: Op) -> bool:
    main = main_op(op)
    b, columns = main.operands[1].type, main.result.type.shape[-1]
    if not _matmul_supports(op) or bool(main.attrs.get("transpose_a", False)) or main.result.type.elements == 0:
        return False
    return b.rank == 2 and b.elements > 0 and columns % PANEL_COLUMNS == 0


def _matmul_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, transpose_a, transpose_b, and the ending."""
    attrs = main_op(op).attrs
    flags = (int(bool(attrs.get(name, False))) for name in ("transpose_a", "transpose_b"))
    return (len(op.operands), *flags, *_ending(op))


def _integers(op: Op, name: str) -> tuple[int, ...]:
    values = op.attrs[name]
    assert isinstance(values, tuple)
    return tuple(int(v) for v in values)  # type: ignore[arg-type]


def _group(op: Op) -> int:
    group = op.attrs["group"]
    assert isinstance(group, int)
    return group


def _conv_supports(group: Op) -> bool:
    if epilogue(group) is None:
        return False
    op = main_op(group)
    x, w = op.operands[0].type, op.operands[1].type
    if not _all_f32(op) or x.rank not in (3, 4) or min(_integers(op, "pads")) < 0:
        return False
    extents = (_depth(op), _pixels(op), math.prod(x.shape[2:]), w.shape[0])
    return max(extents) <= MAX_EXTENT


def _depthwise_supports(op: Op) -> bool:
    found, main = epilogue(op), main_op(op)
    if found is None or found.add is not None or not _conv_supports(op):
        return False
    return main.operands[1].type.shape[1] == 1 and _group(main) > 1


def _forward_scalars(op: Op) -> Sequence[int | float]:
    """Those of `_conv_scalars`, and the ending."""
    return (len(op.operands), *_conv_scalars(main_op(op))[1:], *_ending(op))


def _conv_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, group, strides, pads before, dilations; height first, 1 if there is none."""
    flat = op.operands[0].type.rank == 3
    strides, dilations = _integers(op, "strides"), _integers(op, "dilations")
    before = _integers(op, "pads")[: len(strides)]
    if flat:
        strides, dilations, before = (1, *strides), (1, *dilations), (0, *before)
    return (len(op.operands), _group(op), *strides, *before, *dilations)


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


def _conv_workspace(group: Op) -> tuple[int, int]:
    """Bytes for panels of the patch matrix (f32); of no use for a plain product or a matrix that fits the stack."""
    op = main_op(group)
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


MATMUL_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.matmul",
    supports=_matmul_supports,
    scalars=_matmul_scalars,
    workspace=None,
    groups=True,
    in_place=_over_residual,
)
"""f32 matrix products with broadcasting, on OpenBLAS; then bias, residual and limits."""

PACKED_MATMUL_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.packed_matmul",
    supports=_packed_matmul_supports,
    scalars=_matmul_scalars,
    workspace=None,
    groups=True,
    in_place=_over_residual,
    packing=lambda op: ColumnPanels(bool(main_op(op).attrs.get("transpose_b", False))),
    replaces="memc.cpu.matmul",
)
"""The same for one right matrix, in panels, and faster."""

CONV2D_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.conv2d",
    supports=_conv_supports,
    scalars=_forward_scalars,
    workspace=_conv_workspace,
    groups=True,
    in_place=_over_residual,
)
"""f32 convolution over one or two spatial axes, as patches and matrix products; then bias, residual and limits."""

PACKED_CONV2D_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.packed_conv2d",
    supports=_conv_supports,
    scalars=_forward_scalars,
    workspace=None,
    groups=True,
    in_place=_over_residual,
    packing=lambda op: RowPanels(_group(main_op(op))),
    replaces="memc.cpu.conv2d",
)
"""The same with weights in panels, and faster."""

DEPTHWISE_CONV2D_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.depthwise_conv2d",
    supports=_depthwise_supports,
    scalars=_forward_scalars,
    workspace=None,
    groups=True,
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

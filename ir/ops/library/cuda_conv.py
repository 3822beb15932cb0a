# SPDX-License-Identifier: Apache-2.0
"""The CUDA library kernels for convolutions and their gradients (cuDNN), in f32, f16 and bf16; see `cuda_matmul.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core import Op
from ...types import DType, TensorType
from ..shared.casts import HALF
from ..shared.layout import base_name, first_type, is_channels_last
from ..shared.op_def import LibraryKernel
from ..shared.window import Window, window
from .cuda_call import call_of, optional, over_residual, tf32, typed

MOST_WORKSPACE = 1 << 30
"""Bytes beyond which no algorithm for one convolution is worth its memory; measured, Winograd's gradient of weights takes
up to 870 MB."""

SMALL_WORKSPACE = 1 << 14
"""Bytes that the library's algorithms may take for indices; measured, 1 to 4 KiB."""

SHARED_SUMS = 1 << 23
"""Bytes that blocks sum up a gradient of weights in halves in; measured, 16 to 300 for each weight, 6 MB at most."""

DEPTHWISE_TAPS = (3, 5, 7)
"""Along both axes of a kernel, of those that memc's own kernels for gradients of depthwise convolutions have."""

USEFUL_WORKSPACE = 1 << 25
"""Bytes that small convolutions can use too; measured, up to 19 MB for the only deterministic algorithm."""


def group_of(op: Op) -> int:
    group = op.attrs["group"]
    assert isinstance(group, int)
    return group


def weights_of(main: Op) -> TensorType:
    """The weights of the convolution that an op is, or is a gradient of, with channels first."""
    given = main.result if base_name(main) == "conv_grad_weight" else main.operands[1]
    return first_type(given.type) if is_channels_last(main) else given.type


def images_of(main: Op) -> tuple[TensorType, TensorType]:
    """Its x and y, with channels first."""
    pair = {
        "conv": (main.operands[0], main.result),
        "conv_transpose": (main.result, main.operands[0]),
        "conv_grad_weight": (main.operands[0], main.operands[1]),
    }
    x, y = (value.type for value in pair[base_name(main)])
    return (first_type(x), first_type(y)) if is_channels_last(main) else (x, y)


def _window(main: Op) -> Window:
    weights = weights_of(main)
    return window(main.attrs, weights.shape[2:], weights.rank - 2)


def fits(view: Window, image: Sequence[int], out: Sequence[int]) -> bool:
    """Whether padding by `low` on both sides gives the same windows: the library pads both sides alike."""
    return all(
        size + 2 * low >= d * (k - 1) + 1 and (size + 2 * low - d * (k - 1) - 1) // s + 1 == n
        for size, low, d, k, s, n in zip(image, view.low, view.dilations, view.kernel, view.strides, out)
    )


def _conv_supports(op: Op) -> bool:
    call = call_of(op)
    if call is None or not typed(op, call) or call.result.dtype is not call.main.operands[0].type.dtype:
        return False
    x, y = images_of(call.main)
    return x.rank in (3, 4, 5) and fits(_window(call.main), x.shape[2:], y.shape[2:])


def forward_supports(op: Op) -> bool:
    """A group must end as the library's own kernel does: bias (zeros if there is none), residual if any, ReLU; or do no more
    than round."""
    call = call_of(op)
    if call is None or not _conv_supports(op) or is_depthwise(call.main):
        return False
    return op.region is None or call.relu or (call.bias is None and call.residual is None)


def plain_supports(op: Op) -> bool:
    """An op alone, rounded if it is of halves."""
    call = call_of(op)
    if call is None or call.residual is not None or call.relu or (op.region is not None and call.bias is not None):
        return False
    return _conv_supports(op)


def _weight_supports(op: Op) -> bool:
    call = call_of(op)
    if call is None or not plain_supports(op):
        return False
    return not is_depthwise(call.main) or _has_depthwise_sums(call.main)


def is_depthwise(main: Op) -> bool:
    """Whether every group has one input channel: few products for each element, which generated code does faster."""
    return group_of(main) > 1 and weights_of(main).shape[1] == 1


def _has_depthwise_sums(main: Op) -> bool:
    """Whether there is a kernel of memc's own (`depthwise.cu`) for a depthwise gradient in weights, which needs no workspace.
    Generated code reads images once for each tap."""
    view, weights = _window(main), main.result.type
    square = view.rank == 2 and weights.shape[2] == weights.shape[3] and weights.shape[2] in DEPTHWISE_TAPS
    return square and view.dilations == (1, 1) and main.operands[0].type.dtype is DType.F32


def conv_scalars(op: Op) -> Sequence[int | float]:
    """Operand count, bias, residual, relu, tf32, group, axes, then strides, pads and dilations of each axis."""
    call = call_of(op)
    assert call is not None
    view = _window(call.main)
    ends = (optional(call.bias), optional(call.residual), int(call.relu), tf32(op))
    return (len(op.operands), *ends, group_of(call.main), view.rank, *view.strides, *view.low, *view.dilations)


def _conv_workspace(op: Op) -> tuple[int, int]:
    """Least and most bytes. Of use up to the matrix of all patches, or all tiles transformed; below the least there may
    be no deterministic algorithm for a gradient: indices take some KiB, and a gradient of weights is summed up in a
    copy (with, measured, up to 6 % more) from copies of at least one image, or of as many as `kParts` of cuda_conv_algorithms.cc
    leaves in one part."""
    call = call_of(op)
    assert call is not None
    least = 0 if call.main.name == "conv" else SMALL_WORKSPACE
    if call.main.name == "conv_grad_weight" and is_depthwise(call.main):
        return (0, 0)
    x, y = images_of(call.main)
    weights = weights_of(call.main)
    if call.main.operands[0].type.dtype in HALF:
        return _half_workspace(call.main.name, x, y, weights)
    if call.main.name == "conv_grad_weight":
        parts = 32 if x.shape[0] % 32 == 0 else x.shape[0]
        least += weights.nbytes * 17 // 16 + (x.nbytes + y.nbytes) // parts
    patches = y.shape[0] * math.prod(y.shape[2:]) * math.prod(weights.shape[1:]) * group_of(call.main)
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


CONV_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv",
    supports=forward_supports,
    scalars=conv_scalars,
    workspace=_conv_workspace,
    groups=True,
    in_place=over_residual,
)
"""Convolution over one to three spatial axes, then a bias, a residual and ReLU."""

CONV_TRANSPOSE_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_transpose",
    supports=plain_supports,
    scalars=conv_scalars,
    workspace=_conv_workspace,
    groups=True,
)
"""Transposed convolution: the gradient of convolutions in their data. A group only rounds, as below."""

CONV_GRAD_WEIGHT_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_grad_weight",
    supports=_weight_supports,
    scalars=conv_scalars,
    workspace=_conv_workspace,
    groups=True,
)
"""The gradient of convolutions in their weights."""

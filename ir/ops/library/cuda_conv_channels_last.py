# SPDX-License-Identifier: Apache-2.0
"""The CUDA library kernels for convolutions of images with their channels last, and for their gradients (cuDNN, and cuBLASLt where a
convolution is a product of matrices)."""

from __future__ import annotations

from ...core import Op
from ..shared.casts import HALF
from ..shared.op_def import LibraryKernel
from .cuda_call import call_of, over_residual
from .cuda_conv import (
    SHARED_SUMS,
    SMALL_WORKSPACE,
    USEFUL_WORKSPACE,
    conv_scalars,
    forward_supports,
    group_of,
    plain_supports,
    weights_of,
)

VECTOR = 16
"""Bytes of channels that tensor cores read and write at once."""


def _is_whole(op: Op) -> bool:
    """Whether there are no groups, and channels that are read and written in whole vectors, over two or three axes."""
    call = call_of(op)
    if call is None:
        return False
    weights = weights_of(call.main)
    whole = VECTOR // call.main.operands[0].type.dtype.itemsize
    return weights.rank > 3 and group_of(call.main) == 1 and not any(n % whole for n in weights.shape[:2])


def _workspace(op: Op) -> tuple[int, int]:
    """Least and most bytes: there is nothing to copy."""
    return (SMALL_WORKSPACE, USEFUL_WORKSPACE)


def _sums_workspace(op: Op) -> tuple[int, int]:
    """The same for a gradient of weights, which blocks add up in copies of it: of f32 in one at least, of halves in f32."""
    call = call_of(op)
    assert call is not None
    weights = weights_of(call.main)
    if call.main.operands[0].type.dtype in HALF:
        sums = 4 * weights.elements + min(SHARED_SUMS, 512 * weights.elements)
    else:
        sums = 4 * weights.elements * 17 // 16
    return (SMALL_WORKSPACE + sums, max(SMALL_WORKSPACE + sums, USEFUL_WORKSPACE))


CONV_CHANNELS_LAST_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_channels_last",
    supports=lambda op: _is_whole(op) and forward_supports(op),
    scalars=conv_scalars,
    workspace=_workspace,
    groups=True,
    in_place=over_residual,
)
"""Convolution, then a bias, a residual and ReLU."""

CONV_TRANSPOSE_CHANNELS_LAST_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_transpose_channels_last",
    supports=lambda op: _is_whole(op) and plain_supports(op),
    scalars=conv_scalars,
    workspace=_workspace,
    groups=True,
)
"""Transposed convolution. A group only rounds."""

CONV_GRAD_WEIGHT_CHANNELS_LAST_CUDA = LibraryKernel(
    target="cuda",
    symbol="memc.cuda.conv_grad_weight_channels_last",
    supports=lambda op: _is_whole(op) and plain_supports(op),
    scalars=conv_scalars,
    workspace=_sums_workspace,
    groups=True,
)
"""The gradient of convolutions in their weights."""

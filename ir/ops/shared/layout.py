# SPDX-License-Identifier: Apache-2.0
"""Images with their channels first, [N, C, spatial...], and last, [N, spatial..., C]; weights of convolutions alike."""

from __future__ import annotations

from ...core import Array, Op
from ...types import TensorType

SUFFIX = "_channels_last"
"""Of the names of ops whose images have the channels last."""


def is_channels_last(op: Op) -> bool:
    """Whether an op is one of those of `channels_last.py`."""
    return op.name.endswith(SUFFIX)


def base_name(op: Op) -> str:
    """The name of the op with channels first that does the same."""
    return op.name.removesuffix(SUFFIX)


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation that puts the channels last."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation that puts them first again."""
    return (0, rank - 1, *range(1, rank - 1))


def last_type(type: TensorType) -> TensorType:
    """A type with channels first, with them last."""
    return type.with_shape((type.shape[0], *type.shape[2:], type.shape[1]))


def first_type(type: TensorType) -> TensorType:
    """A type with channels last, with them first."""
    return type.with_shape((type.shape[0], type.shape[-1], *type.shape[1:-1]))


def last_array(array: Array) -> Array:
    """A view of images with channels first, with them last."""
    found: Array = array.transpose(to_last(array.ndim))
    return found


def first_array(array: Array) -> Array:
    """A view of images with channels last, with them first."""
    found: Array = array.transpose(to_first(array.ndim))
    return found

# SPDX-License-Identifier: Apache-2.0
"""Inputs that become constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from memc.ir.arrays import is_numeric, native, plain
from memc.ir.core import Array
from memc.ir.errors import UsageError
from memc.ir.types import TensorType


def bound_input(name: str, value: Any, type: TensorType) -> Array:
    """`value` as the constant in the place of an input: cast without loss, a scalar fills the shape. Raises UsageError."""
    array = native(plain(value, f"bind: input `{name}`"), f"bind: input `{name}`")
    if not is_numeric(array):
        raise UsageError(f"bind: input `{name}`: expected {type}, got elements of {array.dtype}")
    cast = array.astype(type.dtype.numpy)
    if not type.dtype.is_float and not bool(np.all(cast == array)):
        raise UsageError(f"bind: input `{name}`: expected {type}, got a value that {type.dtype.value} cannot hold")
    if cast.ndim == 0:
        return np.array(np.broadcast_to(cast, type.shape))
    if cast.shape != type.shape:
        raise UsageError(f"bind: input `{name}`: expected {type}, got shape {list(cast.shape)}")
    return np.array(cast, order="C")

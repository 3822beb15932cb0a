# SPDX-License-Identifier: Apache-2.0
"""Arrays that come from outside: whatever numpy makes an array of, in this machine's byte order."""

from __future__ import annotations

import numpy as np

from memc.ir.core import Array
from memc.ir.errors import UsageError


def native(value: object, what: str) -> Array:
    """`value` as a numpy array in this machine's byte order: itself if it is one, its strides as they are.

    Raises UsageError, which begins with `what`, for a masked array, whose mask would be lost, and for what is no array.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(f"{what}: expected an array, got a masked one; fill it with `filled` first")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{what}: expected an array, got {type(value).__name__}: {said}") from None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def is_numeric(array: Array) -> bool:
    """Whether its elements are truth values, integers or floats, those of ml_dtypes included."""
    return array.dtype.kind in "biuf" or array.dtype.name.startswith(("bfloat16", "float8"))

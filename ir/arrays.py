# SPDX-License-Identifier: Apache-2.0
"""Arrays that come from outside: whatever numpy makes an array of, in this machine's byte order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.errors import UsageError

Array = npt.NDArray[Any]


def native(value: object, what: str) -> Array:
    """`value` as a numpy array in this machine's byte order: itself if it is one, its strides as they are.

    Raises UsageError, which begins with `what`, for a masked array, whose mask would be lost, and for what is no array.
    """
    array = plain(value, what)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def plain(value: object, what: str) -> Array:
    """`native`, but in whatever byte order it is."""
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(f"{what}: expected an array, got a masked one; fill it with `filled` first")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{what}: expected an array, got {type(value).__name__}: {said}") from None


def type_name(array: Array) -> str:
    """numpy's name of the element type, which says so if the byte order is another than this machine's."""
    return array.dtype.name if array.dtype.isnative and array.dtype.fields is None else str(array.dtype)


def is_numeric(array: Array) -> bool:
    """Whether its elements are truth values, integers or floats, those of ml_dtypes included."""
    return array.dtype.kind in "biuf" or array.dtype.name.startswith(("bfloat16", "float8"))

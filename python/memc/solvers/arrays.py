# SPDX-License-Identifier: Apache-2.0
"""Arrays as the native library takes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi


def rows(table: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Lists of numbers as two arrays: where each begins (and the last ends), and all numbers one after another."""
    first = np.zeros(len(table) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, table), np.int64, len(table)), out=first[1:])
    return tensor(first), tensor(np.fromiter(chain.from_iterable(table), np.int64, int(first[-1])))


def tensor(array: npt.NDArray[np.int64]) -> Any:
    """The array as a tensor over the same bytes."""
    return tvm_ffi.from_dlpack(array)

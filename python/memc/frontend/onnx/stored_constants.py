# SPDX-License-Identifier: Apache-2.0
"""Which stored tensors of a model for training are parameters, and not what an exporter computed.

PyTorch's exporter stores the numbers and masks of a graph beside its parameters. Names tell the numbers; a mask is told by what it
holds, for no parameter is zero but where it hides keys.
"""

from __future__ import annotations

import re

import numpy as np

from memc.ir.core import Array
from memc.ir.types import DType

EXPORTER = "pytorch"
"""`producer_name` of what PyTorch exports."""

NUMBERED = re.compile(r"(val|clone|scalar_tensor_default)(_\d+)?")
"""Names that its exporter counts; parameters have those of their modules."""

CHOSEN = re.compile(r"(where|masked_fill)(_\d+)?")
"""Names of choices, which zeros alone are a mask under, too."""

HIDDEN = -1e4
"""Nothing that a mask adds to hide a key is above."""


_FLOATS = frozenset(dtype.numpy for dtype in DType if dtype.is_float)


def is_parameter(producer: str, name: str, array: Array) -> bool:
    """Whether a stored tensor is of floats, and none that an exporter computed."""
    if array.dtype not in _FLOATS:
        return False
    if array.ndim == 0:
        return producer != EXPORTER or NUMBERED.fullmatch(name) is None
    return not _is_mask(array, producer == EXPORTER and CHOSEN.fullmatch(name) is not None)


def _is_mask(array: Array, may_be_zero: bool) -> bool:
    """Whether an array with rows and columns is 0, or hides, everywhere, and hides somewhere unless it `may_be_zero`."""
    if array.ndim < 2 or array.size == 0 or not array.reshape(-1)[:1].astype(np.float32) <= 0:
        return False
    wide = array.astype(np.float32, copy=False)
    hidden = wide <= HIDDEN
    return bool((hidden | (wide == 0)).all() and (may_be_zero or hidden.any()))

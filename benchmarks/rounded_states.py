# SPDX-License-Identifier: Apache-2.0
"""States moved by rounding: what a step from them has more is no fault of a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def rounded_otherwise(states: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The states with every float moved by about a unit in the last place, up or down."""
    rng = np.random.default_rng(seed)

    def moved(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        return (array * (1 + rng.choice([-1, 1], array.shape) * np.finfo(array.dtype).eps)).astype(array.dtype)

    return {name: moved(array) for name, array in states.items()}

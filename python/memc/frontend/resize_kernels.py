# SPDX-License-Identifier: Apache-2.0
"""Kernels of interpolation: the weight of an element by its distance from a coordinate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memc.ir.core import Array


def linear_kernel(distance: Array) -> Array:
    """Linear interpolation."""
    return np.asarray(np.clip(1 - np.abs(distance), 0, None))


def cubic_kernel(a: float) -> Callable[[Array], Array]:
    """The kernel of cubic convolution (Keys, 1981, equation 15)."""

    def kernel(distance: Array) -> Array:
        d = np.abs(distance)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    return kernel

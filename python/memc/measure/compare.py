# SPDX-License-Identifier: Apache-2.0
"""Comparing a result with a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Optional

import numpy as np

from memc.ir.checked_options import Range, require
from memc.ir.core import Array

Tolerance = Annotated[float, Range(least=0)]


@dataclass(frozen=True)
class Difference:
    """How far a result is from its reference."""

    matches: bool
    relative_norm: float
    """||result - reference|| / ||reference|| in f64 (the absolute norm where the reference is zero)."""
    detail: str
    """The shape or dtype mismatch, or the worst element."""

    def __str__(self) -> str:
        return f"relative error {self.relative_norm:.3g}; {self.detail}"


def compare(
    result: Array,
    reference: Array,
    *,
    rtol: float,
    atol: float,
    norm: float | None = None,
    steps: float | None = None,
) -> Difference:
    """Compare elementwise: |result - reference| <= atol * max(1, rms(reference)) + rtol * |reference|.

    With `norm`, it is the relative error of floats as a whole that must be at most that. With `steps`, it is the root mean
    square of the differences of 8-bit integers.

    The scale keeps elements near zero in a tensor of large ones from counting as wrong for rounding alone. NaN equals NaN,
    infinities compare by sign, and anything else must be equal. Raises UsageError for a tolerance that is none.
    """
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        require(tolerance, Tolerance, name)
    require(norm, Optional[Tolerance], "norm")
    require(steps, Optional[Tolerance], "steps")
    if result.shape != reference.shape:
        return Difference(False, float("inf"), f"expected shape {list(reference.shape)}, got {list(result.shape)}")
    if result.dtype != reference.dtype:
        return Difference(False, float("inf"), f"expected {reference.dtype}, got {result.dtype}")
    if result.size == 0:
        return Difference(True, 0.0, "no elements")
    is_float = result.dtype.kind not in "biu"
    a, b = result.astype(np.float64), reference.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.where(np.isfinite(b), b, 0.0)
        scale = max(1.0, float(np.sqrt(np.mean(finite * finite))))
        close = np.isclose(a, b, rtol=rtol, atol=atol * scale, equal_nan=True) if is_float else result == reference
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        relative = float(np.linalg.norm(gap)) / (float(np.linalg.norm(finite)) or 1.0)
    # NaN and infinite gaps are worse than any finite one.
    worst = int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))
    index = [int(i) for i in np.unravel_index(worst, result.shape)]
    detail = f"{int(np.sum(~close))} of {result.size} elements differ; worst at {index}: expected {b.flat[worst]:.9g}, got {a.flat[worst]:.9g}"
    if is_float and norm is not None:
        matches = relative <= norm
    elif steps is not None and result.dtype.kind in "iu" and result.dtype.itemsize == 1:
        matches = float(np.sqrt(np.mean(gap * gap))) <= steps
    else:
        matches = bool(close.all())
    return Difference(matches, relative, detail)

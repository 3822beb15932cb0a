# SPDX-License-Identifier: Apache-2.0
"""How far results may be from a reference, by the types that a model computes in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from memc.ir.core import Array
from memc.ir.module import Module
from memc.ir.types import DType
from memc.measure.compare import Difference, compare

TOLERANCES = {"f32": (1e-3, 1e-5), "tf32": (2e-2, 2e-3)}
"""Relative and absolute, per element. TF32 keeps 10 bits of a factor's mantissa: an error of 3e-4 in one product."""

NORMS = {"f16": 1e-2, "8-bit": 2e-2, "bf16": 5e-2}
"""The relative error of an output as a whole that coarse types may have. Half precision keeps 10 and 7 bits of mantissa of
every value: errors of 5e-4 and 4e-3, which add up layer by layer. Quantization to 8 bits turns the last bit of a sum into a
whole step where that lies between two integers, and a step is about 2e-2 of the root mean square of a tensor."""

STEPS = 0.5
"""The root mean square of the differences that an 8-bit result of a quantized model may have: one step in a quarter of the
elements, or none at all but in a few."""

MOST = 1e-1
"""The relative error that is allowed at most, however far references are from each other: by twice their difference a result
may be off in a deep net of coarse types, where every rounding is as good as another."""

MOST_STEPS = 2.0
"""The same of the root mean square of the differences of 8-bit results."""

EIGHT = (DType.I8, DType.U8)


@dataclass(frozen=True)
class Tolerances:
    """What differences are allowed."""

    of: str
    """The types that decide, or `given`."""
    rtol: float
    atol: float
    norm: float | None = None
    """The relative error of floats as a whole, in place of `rtol` and `atol`; None for none."""
    steps: float | None = None
    """The root mean square of the differences of 8-bit integers; None if they must be equal, as others must."""

    def compare(self, result: Array, reference: Array) -> Difference:
        """Compare by these tolerances."""
        return compare(result, reference, rtol=self.rtol, atol=self.atol, norm=self.norm, steps=self.steps)

    def widened(self, reference: Array, other: Array) -> Tolerances | None:
        """Those of a tensor that two references, or a reference of two models of which each is as good as the other, differ
        in; None where that is no reason for wider ones."""
        if self.norm is None or reference.shape != other.shape or reference.dtype != other.dtype:
            return None
        if self.steps is not None and reference.dtype.kind in "iu" and reference.dtype.itemsize == 1:
            apart = float(np.sqrt(np.mean((reference.astype(np.float64) - other) ** 2)))
            return replace(self, steps=min(2 * apart, MOST_STEPS)) if 2 * apart > self.steps else None
        apart = self.compare(reference, other).relative_norm
        return replace(self, norm=min(2 * apart, MOST)) if 2 * apart > self.norm else None

    def __str__(self) -> str:
        if self.norm is not None:
            return f"{self.of}: relative error {self.norm:g}"
        return f"{self.of}: rtol {self.rtol:g}, atol {self.atol:g}"


def tolerances_of(module: Module, precision: str, rtol: float | None, atol: float | None) -> Tolerances:
    """The tolerances of a module compiled in `precision`: given ones, else by the coarsest of the types in which it computes."""
    usual = TOLERANCES.get(precision, TOLERANCES["tf32"])
    found = Tolerances(precision, usual[0] if rtol is None else rtol, usual[1] if atol is None else atol)
    if rtol is not None or atol is not None:
        return replace(found, of="given")
    coarse = [name for name in (*_coarse_types(module), precision) if name in NORMS]
    if not coarse:
        return found
    worst = max(coarse, key=lambda name: NORMS[name])
    return replace(found, of=worst, norm=NORMS[worst], steps=STEPS if "8-bit" in coarse else None)


def _coarse_types(module: Module) -> Iterator[str]:
    """Half precisions among the values of a module, and `8-bit` if floats are rounded to such integers in it."""
    types = {value.type.dtype for value in module.main.values()}
    yield from (dtype.value for dtype in (DType.F16, DType.BF16) if dtype in types)
    casts = (op for op in module.main.ops if op.name == "cast")
    if any(op.operands[0].type.dtype.is_float and op.result.type.dtype in EIGHT for op in casts):
        yield "8-bit"

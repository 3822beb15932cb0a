# SPDX-License-Identifier: Apache-2.0
"""set-precision: the arithmetic of matrix products and convolutions on CUDA.

Operands and results stay f32. With TF32 (NVIDIA, 2020) the factors of a product are rounded to 10 bits of mantissa, for
tensor cores, and products are added up in f32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from memc.ir.core import Function
from memc.ir.module import Module
from memc.passes.base import Pass

CUDA_LIBRARY = "memc.cuda."


def set_precision(function: Function, mode: Literal["f32", "tf32"]) -> None:
    """Write the precision into the plan of every call of a CUDA library."""
    for op in function.ops:
        if op.plan.library_kernel is not None and op.plan.library_kernel.startswith(CUDA_LIBRARY):
            op.plan = replace(op.plan, precision=None if mode == "f32" else mode)


@dataclass(frozen=True)
class SetPrecision(Pass):
    """TF32 or strict f32 for calls of the CUDA libraries."""

    name: ClassVar[str] = "set-precision"
    mode: Literal["f32", "tf32"] = "f32"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            set_precision(function, self.mode)

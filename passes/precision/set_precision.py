# SPDX-License-Identifier: Apache-2.0
"""set-precision: the arithmetic of matrix products and convolutions on CUDA.

Operands and results stay f32. With TF32 (NVIDIA, 2020) the factors of a product are rounded to 10 bits of mantissa, for
tensor cores, and products are added up in f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from memc.ir.core import Function
from memc.ir.module import Module
from memc.passes.base import Pass
from memc.passes.kernels.select_kernels import KERNEL

PRECISION = "precision"
"""The attribute of calls that are not in strict f32."""

CUDA_LIBRARY = "memc.cuda."


def set_precision(function: Function, mode: str) -> None:
    """Give every call of a CUDA library the attribute, or take it away for `f32`."""
    for op in function.ops:
        if not str(op.attrs.get(KERNEL, "")).startswith(CUDA_LIBRARY):
            continue
        if mode == "f32":
            op.attrs.pop(PRECISION, None)
        else:
            op.attrs[PRECISION] = mode


@dataclass(frozen=True)
class SetPrecision(Pass):
    """TF32 or strict f32 for calls of the CUDA libraries."""

    name: ClassVar[str] = "set-precision"
    mode: Literal["f32", "tf32"] = "f32"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            set_precision(function, self.mode)

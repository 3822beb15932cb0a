# SPDX-License-Identifier: Apache-2.0
"""What the optimization levels run, as pipeline text."""

from __future__ import annotations

from typing import Literal

from memc.ir.errors import UsageError
from memc.ir.liveness import ALIGNMENT

Kernels = Literal["auto", "generated"]

KERNELS: tuple[Kernels, ...] = ("auto", "generated")


def pipeline(
    level: int, target: Literal["llvm", "cuda"] = "llvm", alignment: int = ALIGNMENT, kernels: Kernels = "auto"
) -> str:
    """The passes of -O`level`. `kernels`: whether library kernels may be used.

    -O0  every value its own bytes: the reference for "before"
    -O1  in-place and sharing in linear time (Chen et al. 2016, section 3), addresses one after another
    -O2  fusion, and addresses by search
    -O3  as -O2 for now: there are no exact and joint solvers yet

    Raises UsageError for another level.
    """
    library = target if kernels == "auto" else "none"
    at = f"alignment={alignment}"
    select = f"select-kernels{{target={library} {at}}}"
    select_least = f"select-kernels{{target={library} workspace=least {at}}}"
    if level == 0:
        passes = ["materialize-returns", "decompose", select_least, "donate", f"assign-addresses{{solver=none {at}}}"]
    elif level == 1:
        passes = [
            "materialize-returns",
            "canonicalize",
            "decompose",
            "canonicalize",
            select_least,
            f"in-place{{{at}}}",
            f"share{{strategy=color {at}}}",
            f"assign-addresses{{solver=sequential {at}}}",
        ]
    elif level in (2, 3):
        passes = [
            "materialize-returns",
            "canonicalize",
            "decompose",
            "canonicalize",
            f"fuse{{library={library} {at}}}",
            select,
            f"in-place{{{at}}}",
            f"assign-addresses{{solver=auto {at}}}",
        ]
    else:
        raise UsageError(f"optimization level: expected 0, 1, 2 or 3, got {level}")
    return ",".join(passes)

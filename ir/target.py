# SPDX-License-Identifier: Apache-2.0
"""The target of a module: what passes, checkers and code generation need to know of the hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Optional

from .checked import Alignment, Checked, require
from .errors import UsageError

Kind = Literal["llvm", "cuda"]

KINDS: tuple[Kind, ...] = ("llvm", "cuda")

ALIGNMENT = 64
"""Bytes of which offsets are multiples where no target says otherwise: what kernels for the CPU assume."""

ALIGNMENTS: Mapping[Kind, int] = {"llvm": ALIGNMENT, "cuda": 256}
"""Bytes of which the kernels of each kind assume offsets to be multiples."""

DEFAULT_ARCH = "sm_90"


def is_arch(text: str) -> bool:
    """Whether a text names a CUDA compute capability, such as sm_90."""
    return re.fullmatch(r"sm_[1-9][0-9]{1,2}[af]?", text) is not None


@dataclass(frozen=True)
class Target(Checked):
    """What a module is planned and compiled for. `Target.of` fills in what a kind has by itself."""

    kind: Kind = "llvm"
    """`llvm` (the CPU) or `cuda`."""
    arch: str = ""
    """Compute capability of the GPU; empty for llvm."""
    alignment: Alignment = ALIGNMENT
    """Bytes; every offset in the arena and in the weight slab is a multiple of it."""

    def owner(self) -> str:
        """What messages call it."""
        return "target"

    def check(self) -> None:
        """Raise UsageError for a GPU architecture that has no such name, or that the kind has no use for."""
        if self.kind == "cuda" and not is_arch(self.arch):
            raise UsageError(f"arch: expected a CUDA compute capability such as sm_90, got {self.arch!r}")
        if self.kind != "cuda" and self.arch:
            raise UsageError(f"arch {self.arch!r}: only target cuda has GPU architectures")

    @staticmethod
    def of(kind: str, arch: str | None = None, alignment: int | None = None) -> Target:
        """The target of a kind; where `arch` or `alignment` (bytes) is None it is the kind's own. Raises UsageError."""
        kind = require(kind, Kind, "target")
        arch = require(arch, Optional[str], "arch")
        alignment = require(alignment, Optional[Alignment], "alignment")
        if arch is None:
            arch = DEFAULT_ARCH if kind == "cuda" else ""
        elif kind != "cuda":
            raise UsageError(f"arch {arch!r}: only target cuda has GPU architectures")
        return Target(kind, arch, ALIGNMENTS[kind] if alignment is None else alignment)  # type: ignore[index, arg-type]

# SPDX-License-Identifier: Apache-2.0
"""What code is generated for: a module's target, and a CPU. No TVM here: the driver uses it too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from memc.ir.checked_options import Checked, require
from memc.ir.errors import UsageError
from memc.ir.target import ALIGNMENTS, Kind, Target
from memc.runtime.host_cpu import native_cpu


@dataclass(frozen=True)
class CodeTarget(Checked):
    """A module's target with what only code generation needs."""

    target: Target = Target()
    mcpu: str = ""
    """CPU, in LLVM's names; for cuda that of the host. Empty: what this machine has, as a level of the x86-64 psABI
    (x86-64-v2, -v3 or -v4), so that the artifact runs on any machine of that level."""

    def owner(self) -> str:
        """What messages call it."""
        return "target"

    def check(self) -> None:
        """Raise UsageError for a CPU that has no such name."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]*", self.mcpu):
            raise UsageError(f"mcpu: expected a CPU name of LLVM such as x86-64-v3, got {self.mcpu!r}")

    @staticmethod
    def create(kind: str, arch: str | None = None, mcpu: str | None = None, alignment: int | None = None) -> CodeTarget:
        """A checked target. `alignment`: bytes. Raises UsageError for a kind or GPU architecture that does not exist."""
        mcpu = require(mcpu, Optional[str], "mcpu")
        return CodeTarget(Target.of(kind, arch, alignment), "" if mcpu is None or mcpu == "native" else mcpu)

    @property
    def kind(self) -> Kind:
        """`llvm` or `cuda`."""
        return self.target.kind

    @property
    def arch(self) -> str:
        """Compute capability of the GPU; empty for llvm."""
        return self.target.arch

    @property
    def alignment(self) -> int:
        """Bytes of which offsets in the arena and in the weight slab are multiples."""
        return self.target.alignment

    @property
    def kernel_alignment(self) -> int:
        """Bytes of which kernels assume the addresses of all data to be multiples; `alignment` is a multiple of it."""
        return ALIGNMENTS[self.kind]

    @property
    def cpu(self) -> str:
        """The CPU to generate (host) code for, in LLVM's names."""
        return self.mcpu or native_cpu()

    def __str__(self) -> str:
        return f"cuda -arch={self.arch}" if self.kind == "cuda" else f"llvm -mcpu={self.cpu}"

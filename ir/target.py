# SPDX-License-Identifier: Apache-2.0
"""The target of a module: what passes, checkers and code generation need to know of the hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Optional

from .checked_options import Alignment, Checked, require
from .errors import UsageError
from .spaces import ARENA, DeviceId, DeviceKind, Link, Space, merged, require_distinct, spaces_on

Kind = Literal["llvm", "cuda"]

KINDS: tuple[Kind, ...] = ("llvm", "cuda")

ALIGNMENT = 64
"""Bytes of which offsets are multiples where no target says otherwise: what kernels for the CPU assume."""

ALIGNMENTS: Mapping[Kind, int] = {"llvm": ALIGNMENT, "cuda": 256}
"""Bytes of which the kernels of each kind assume offsets to be multiples."""

COMPUTES: Mapping[Kind, DeviceKind] = {"llvm": "cpu", "cuda": "cuda"}
"""The kind of device that runs the kernels of each."""

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
    """Bytes; every offset in a space is a multiple of it."""
    spaces: Sequence[Space] = ()
    """Memory spaces in the order of a program's storages. `arena`, `weights` and `io` are added where they are not given."""
    links: Sequence[Link] = ()
    """Between the devices of the spaces."""

    def __post_init__(self) -> None:
        require_distinct(self.spaces, self.links)
        object.__setattr__(self, "spaces", merged(self.spaces, self.standard_spaces()))
        for standard in self.standard_spaces():
            if self.space(standard.name).holds != standard.holds:
                raise UsageError(f"space {standard.name}: expected one that holds {standard.holds}")
        device = self.space(ARENA).device
        if device.kind != COMPUTES[self.kind]:
            raise UsageError(f"space {ARENA}: expected a device of kind {COMPUTES[self.kind]}, got {device}")
        for link in self.links:
            for end in (link.source, link.destination):
                if end not in {space.device for space in self.spaces}:
                    raise UsageError(f"link: expected devices that spaces lie on, got {end}")

    def owner(self) -> str:
        """What messages call it."""
        return "target"

    def check(self) -> None:
        """Raise UsageError for a GPU architecture that has no such name, or that the kind has no use for."""
        if self.kind == "cuda" and not is_arch(self.arch):
            raise UsageError(f"arch: expected a CUDA compute capability such as sm_90, got {self.arch!r}")
        if self.kind != "cuda" and self.arch:
            raise UsageError(f"arch {self.arch!r}: only target cuda has GPU architectures")

    def standard_spaces(self) -> tuple[Space, ...]:
        """The spaces that a target of this kind has by itself."""
        return spaces_on(DeviceId(COMPUTES[self.kind]))

    def more_spaces(self) -> tuple[Space, ...]:
        """The spaces beside those, or unlike them."""
        return tuple(space for space in self.spaces if space not in self.standard_spaces())

    @property
    def device(self) -> DeviceId:
        """The device that runs the kernels, whose memory is the arena."""
        return self.space(ARENA).device

    def space(self, name: str) -> Space:
        """The space of that name. Raises UsageError if there is none."""
        for space in self.spaces:
            if space.name == name:
                return space
        raise UsageError(f"expected a space of the target ({', '.join(s.name for s in self.spaces)}), got {name}")

    def link(self, source: DeviceId, destination: DeviceId) -> Link | None:
        """The link from one device to another; None if the target has none."""
        return next((k for k in self.links if (k.source, k.destination) == (source, destination)), None)

    def with_memory_of(self, other: Target) -> Target:
        """This target with the spaces and links of another, if that is of the same kind."""
        return self if other.kind != self.kind else replace(self, spaces=other.spaces, links=other.links)

    @staticmethod
    def of(
        kind: str,
        arch: str | None = None,
        alignment: int | None = None,
        spaces: Sequence[Space] = (),
        links: Sequence[Link] = (),
    ) -> Target:
        """The target of a kind; where `arch` or `alignment` (bytes) is None it is the kind's own. Raises UsageError."""
        kind = require(kind, Kind, "target")
        arch = require(arch, Optional[str], "arch")
        alignment = require(alignment, Optional[Alignment], "alignment")
        if arch is None:
            arch = DEFAULT_ARCH if kind == "cuda" else ""
        elif kind != "cuda":
            raise UsageError(f"arch {arch!r}: only target cuda has GPU architectures")
        return Target(kind, arch, ALIGNMENTS[kind] if alignment is None else alignment, spaces, links)  # type: ignore[index, arg-type]

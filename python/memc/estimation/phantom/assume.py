# SPDX-License-Identifier: Apache-2.0
"""What is taken to be so where a script's data or the time of kernels decides, of which the phantom device knows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from memc.ir.errors import UsageError
from memc.ir.messages import nearest, shown

SKIPPED = 3
"""First steps that a gradient scaler may skip: a scale of 65,536 is halved so often until ResNet-50's gradients are finite."""


@dataclass(frozen=True)
class Assume:
    """None: not known, so that both outcomes are tried; zero for a share.

    Raises UsageError.
    """

    skipped: int | None = None
    """First steps of each optimizer that a gradient scaler skips."""
    engines: str | None = None
    """Of cudnn.benchmark: `first`, cuDNN's own choice, or `largest`, those with the largest workspaces."""
    all: bool | None = None
    """What `torch.all` reads as."""
    nonzero: float | None = None
    """Share of elements that `nonzero`, and masks, find."""

    def __post_init__(self) -> None:
        expected = {
            "skipped": (type(self.skipped) is int and 0 <= self.skipped <= 10**6, "a whole number from 0 to 1000000"),
            "engines": (self.engines in ("first", "largest"), "first or largest"),
            "all": (type(self.all) is bool, "true or false"),
            "nonzero": (type(self.nonzero) in (int, float) and 0 <= (self.nonzero or 0) <= 1, "a share from 0 to 1"),
        }
        for name, (is_right, what) in expected.items():
            if getattr(self, name) is not None and not is_right:
                raise UsageError(f"assume: {name}: expected {what}, got {shown(getattr(self, name))}")

    @property
    def config(self) -> dict[str, Any]:
        """What the process of a script is told."""
        return {
            "skipped": self.skipped or 0,
            "largest": self.engines == "largest",
            "all": self.all is not False,
            "nonzero": float(self.nonzero or 0),
        }


def assume(values: Mapping[str, object] | None) -> Assume:
    """By name. Raises UsageError."""
    known = asdict(Assume())
    for name in values or {}:
        if name not in known:
            near = nearest(name, known) or f"; there are: {', '.join(known)}"
            raise UsageError(f"assume: expected what can be assumed, got {shown(name)}{near}")
    return Assume(**(values or {}))  # type: ignore[arg-type]

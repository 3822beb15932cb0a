# SPDX-License-Identifier: Apache-2.0
"""What cases of overloads are made of: small random tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

A = torch.ops.aten
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def f(*shape: int) -> torch.Tensor:
    """Normal numbers."""
    return torch.randn(shape)


def u(*shape: int) -> torch.Tensor:
    """Numbers from 0.1 to 0.9."""
    return torch.rand(shape) * 0.8 + 0.1


def i(high: int, *shape: int) -> torch.Tensor:
    """Integers from 0 on."""
    return torch.randint(0, high, shape)


def m(*shape: int) -> torch.Tensor:
    """Truths."""
    return torch.rand(shape) > 0.5


def each(names: str, *inputs: torch.Tensor, **options: Any) -> list[Case]:
    """One case for each overload of `names`, such as `sin.default`, all with the same inputs."""
    found: list[Case] = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        target = getattr(getattr(A, packet), overload)
        found.append((lambda *x, target=target: target(*x, **options), inputs))
    return found

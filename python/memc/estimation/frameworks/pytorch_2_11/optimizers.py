# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's optimizers keep, and allocate in a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer allocates."""

    states: int = 0
    """Tensors like the parameter that it keeps for each."""
    lists: int = 0
    """Temporaries of all parameters at once in a step, as multi-tensor forms make them."""
    singles: int = 0
    """Temporaries of one parameter at a time."""
    counters: bool = False
    """Whether the number of steps is kept on the device, in 4 bytes for each parameter."""
    early: bool = False
    """Whether states are made before the first step."""


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(),
    "momentum": Optimizer(states=1),
    "adam": Optimizer(states=2, lists=1),
    "adam-fused": Optimizer(states=2, counters=True),
    "adam-loop": Optimizer(states=2, singles=2),
    "adamw": Optimizer(states=2, lists=1),
    "adamw-fused": Optimizer(states=2, counters=True),
    "adamw-loop": Optimizer(states=2, singles=2),
    "rmsprop": Optimizer(states=1, lists=1),
    "adagrad": Optimizer(states=1, lists=2, early=True),
}
"""By name; in their multi-tensor (foreach) form, the default on CUDA, unless the name says otherwise."""

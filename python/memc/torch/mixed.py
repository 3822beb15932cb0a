# SPDX-License-Identifier: Apache-2.0
"""PyTorch's objects of mixed precision as memc's options: autocast as `precision`, GradScaler as `loss_scale`."""

from __future__ import annotations

from typing import Any

import torch

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.passes.training.loss_scale import GROWTH

PRECISIONS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
"""Element types of products by PyTorch's."""


def precision_of(given: Any) -> Any:
    """`precision` of `memc.compile`: what an autocast object or an element type says, or the option itself.

    Raises UnsupportedError for a type that memc has not.
    """
    if isinstance(given, torch.autocast):
        if not given._enabled:
            return "f32"
        given = given.fast_dtype
    if not isinstance(given, torch.dtype):
        return given
    if given not in PRECISIONS:
        raise UnsupportedError(f"unsupported: precision {given}: expected {', '.join(map(str, PRECISIONS))}")
    return PRECISIONS[given]


def loss_scale_of(scaler: Any) -> str | float:
    """`loss_scale` of what a GradScaler does. Raises UsageError for what is none, UnsupportedError for options of its that a loss
    scale of memc's has not."""
    if not isinstance(scaler, torch.amp.GradScaler):
        raise UsageError(f"scaler: expected a torch.amp.GradScaler, got {shown(scaler)}")
    if not scaler.is_enabled():
        return 1.0
    fixed = {"growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": GROWTH}
    for option, value in fixed.items():
        got = getattr(scaler, f"get_{option}")()
        if got != value:
            raise UnsupportedError(f"unsupported: GradScaler: the option {option}={got}: expected {value}")
    return "dynamic"


def begin_with(scaler: Any, views: dict[str, torch.Tensor]) -> None:
    """Let a step's dynamic scale begin with a scaler's, and count the good steps that it has counted."""
    if not scaler.is_enabled():
        return
    kept = scaler.state_dict()
    with torch.no_grad():
        views["loss_scale"].fill_(float(kept["scale"]))
        views["loss_scale.good_steps"].fill_(int(kept["_growth_tracker"]))

# SPDX-License-Identifier: Apache-2.0
"""Arguments of compile_step, checked before anything is exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from memc.ir.errors import UsageError
from memc.ir.messages import shown

from .losses import LossLike


def batch_of(example: Any, loss: LossLike, labels: Any) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """The arguments of a batch in order, those by name, and how many at the end are labels. Raises UsageError for a batch that is
    none, or has fewer tensors than the model and the loss take."""
    if isinstance(example, Mapping):
        if loss is not None and loss != "output":
            raise UsageError(
                "example: expected the model's inputs and then the labels, got a dict; one goes with loss `output`"
            )
        if not example:
            raise UsageError("example: expected a batch, got an empty dict")
        return (), dict(example), 0
    if not isinstance(example, (tuple, list)):
        got = f"a tensor of shape {list(example.shape)}" if isinstance(example, torch.Tensor) else shown(example)
        raise UsageError(f"example: expected a batch such as (x, y), the model's inputs and then the labels, got {got}")
    if not example:
        raise UsageError("example: expected a batch, got none")
    if loss is None or loss == "output":
        return tuple(example), {}, 0
    count = len(loss) if isinstance(loss, Mapping) else labels
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UsageError(
            f"labels: expected how many tensors at the end of `example` are the loss's, got {shown(count)}"
        )
    if count >= len(example):
        raise UsageError(
            f"example: expected inputs of the model and then {count} of the loss (`labels`), got {len(example)} in all"
        )
    return tuple(example), {}, count


def norm_type(given: Any) -> str:
    """`norm_type` of PyTorch's clip_grad_norm_ as memc's. Raises UsageError for another than 2 and infinity."""
    try:
        return {2.0: "2", float("inf"): "inf"}[float(given)]
    except (TypeError, ValueError, KeyError):
        raise UsageError(f"clip_norm_type: expected 2 or inf, got {shown(given)}") from None


def rate_of(given: Any) -> float | None:
    """A learning rate, or None. Raises UsageError for what is no number."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, (int, float))):
        raise UsageError(f"learning_rate: expected a number, got {shown(given)}")
    return given

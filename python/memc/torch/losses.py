# SPDX-License-Identifier: Apache-2.0
"""Losses of training steps: names, modules and functions, exported together with the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import torch
from torch import nn

from memc.ir.errors import UsageError
from memc.ir.messages import shown

LossLike = Union[str, nn.Module, Callable[..., Any], None]
"""A name of `LOSSES`, a module or function of the model's result and the labels, or None: the model returns the loss."""

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "cross-entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "l1": nn.L1Loss,
    "smooth-l1": nn.SmoothL1Loss,
    "huber": nn.HuberLoss,
    "bce": nn.BCELoss,
    "bce-with-logits": nn.BCEWithLogitsLoss,
    "kl": lambda: nn.KLDivLoss(reduction="batchmean"),
    "nll": nn.NLLLoss,
}
"""Losses by name."""


def loss_of(loss: LossLike) -> Callable[..., Any] | None:
    """The function of a loss; None for a model that returns it. Raises UsageError."""
    if isinstance(loss, str):
        if loss == "output":
            return None
        if loss not in LOSSES:
            raise UsageError(f"loss: expected one of {', '.join(sorted([*LOSSES, 'output']))}, got {loss}")
        made: Callable[..., Any] = LOSSES[loss]()
        return made
    if loss is None or callable(loss):
        return loss
    raise UsageError(f"loss: expected a name, a loss module or a function, got {shown(loss)}")


class WithLoss(nn.Module):  # type: ignore[misc]  # PyTorch is absent where types are checked.
    """A model and its loss as one module, which takes the model's inputs and then the labels."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None, labels: int, outputs: bool = False) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.labels = labels
        """How many of the inputs are the loss's."""
        self.outputs = outputs
        """Whether the scores are a result, too."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The loss; or with the scores, by name."""
        count = len(args) - (self.labels if self.loss is not None else 0)
        result = self.model(*args[:count], **kwargs)
        loss = scalar(result if self.loss is None else self.loss(scores(result), *args[count:]))
        if not self.outputs:
            return loss
        return {"loss": loss, SCORES: scores(result) if self.loss is not None else logits_of(result)}


SCORES = "scores"
"""What the scores are called among a step's results."""


def scores(result: Any) -> Any:
    """What a loss takes of a model's result: the tensor itself, `logits` of a result that has them, or the first."""
    if isinstance(result, torch.Tensor):
        return result
    found = _logits(result)
    if found is not None:
        return found
    first = next(iter(result.values())) if isinstance(result, Mapping) else result[0]
    return first


def _logits(result: Any) -> Any:
    return result.get("logits") if isinstance(result, Mapping) else getattr(result, "logits", None)


def logits_of(result: Any) -> torch.Tensor:
    """The scores of a model that returns its loss. Raises UsageError for one that does not return them as `logits`."""
    found = _logits(result)
    if not isinstance(found, torch.Tensor):
        raise UsageError("outputs: expected a model that returns `logits` beside its loss, got none; give `loss`")
    return found


def scalar(result: Any) -> torch.Tensor:
    """The loss among a model's results: the tensor itself, or `loss` of a result that has one."""
    if not isinstance(result, torch.Tensor):
        found = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
        if found is None and isinstance(result, Sequence) and result:
            found = result[0]
        result = found
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        got = f"a tensor of shape {list(result.shape)}" if isinstance(result, torch.Tensor) else shown(result)
        raise UsageError(f"loss: expected a tensor of one element, got {got}; give `loss`, or return the loss first")
    return result.reshape(())

# SPDX-License-Identifier: Apache-2.0
"""Losses of training steps: names, modules and functions, exported together with the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import torch
from torch import nn

from memc.ir.errors import UsageError
from memc.ir.messages import shown

LossLike = Union[str, nn.Module, Callable[..., Any], Mapping[str, Any], None]
"""A name of `LOSSES`, a module or function of the model's result and the labels, several of these by name, each alone or with its
weight as a pair, or None: the model returns the loss."""

SCORES = "scores"
"""What the scores are called among a step's results."""

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
    if isinstance(loss, Mapping):
        return SumOfLosses(loss)
    if loss is None or callable(loss):
        return loss
    raise UsageError(f"loss: expected a name, a loss module or a function, got {shown(loss)}")


def checked_metrics(given: Mapping[str, Any] | None) -> Mapping[str, Callable[..., Any]]:
    """Metrics by name. Raises UsageError for what is none."""
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"metrics: expected functions by name, got {shown(given)}")
    for name, metric in (given or {}).items():
        if not isinstance(name, str) or name in ("loss", SCORES):
            raise UsageError(f"metrics: expected names other than `loss` and `{SCORES}`, got {shown(name)}")
        if not callable(metric):
            raise UsageError(f"metric `{name}`: expected a function of the scores and the labels, got {shown(metric)}")
    return given or {}


class SumOfLosses(nn.Module):  # type: ignore[misc]  # PyTorch is absent where types are checked.
    """Several losses by name, times their weights. Each takes one label, in order, and the model's result of its name, or in order, or
    the only one."""

    def __init__(self, losses: Mapping[str, Any]) -> None:
        super().__init__()
        if not losses:
            raise UsageError("loss: expected one loss or several by name, got an empty dict")
        pairs = {name: each if isinstance(each, tuple) else (each, 1.0) for name, each in losses.items()}
        for name, pair in pairs.items():
            if not isinstance(name, str) or name in ("loss", SCORES):
                raise UsageError(f"loss: expected names other than `loss` and `{SCORES}`, got {shown(name)}")
            if len(pair) != 2 or not isinstance(pair[1], (int, float)) or isinstance(pair[0], (Mapping, type(None))):
                raise UsageError(f"loss `{name}`: expected a loss, or a loss and its weight, got {shown(losses[name])}")
        self.losses = {name: loss_of(each) for name, (each, _) in pairs.items()}
        self.weights = {name: float(weight) for name, (_, weight) in pairs.items()}
        if None in self.losses.values():
            raise UsageError("loss: `output` is of the model alone; expected losses of its results and the labels")

    def parts(self, result: Any, labels: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Each loss, without its weight. Raises UsageError where results or labels are not as many."""
        count = len(self.losses)
        if len(labels) != count:
            raise UsageError(
                f"loss: expected {count} labels at the end of the batch, one for each loss, got {len(labels)}"
            )
        if isinstance(result, torch.Tensor):
            given = [result] * count
        elif isinstance(result, Mapping):
            lacking = [name for name in self.losses if name not in result]
            if lacking:
                raise UsageError(
                    f"loss `{lacking[0]}`: expected a result of this name, got {', '.join(map(str, result))}"
                )
            given = [result[name] for name in self.losses]
        else:
            given = list(result)
            if len(given) != count:
                raise UsageError(f"loss: expected {count} results of the model, one for each loss, got {len(given)}")
        named = zip(self.losses.items(), given, labels)
        return {name: scalar(loss(scores(of), label)) for (name, loss), of, label in named}  # type: ignore[misc]

    def total(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The weighted sum."""
        first, *rest = (weight * parts[name] for name, weight in self.weights.items())
        for term in rest:
            first = first + term
        return first


class WithLoss(nn.Module):  # type: ignore[misc]  # PyTorch is absent where types are checked.
    """A model and its loss as one module, which takes the model's inputs and then the labels."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any] | None,
        labels: int,
        outputs: bool = False,
        metrics: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.labels = labels
        """How many of the inputs are the loss's."""
        self.outputs = outputs
        """Whether the scores, or several losses one by one, are results, too."""
        self.metrics = dict(metrics or {})
        """Functions of the scores and the labels whose values are results, too."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The loss; or with further results, by name."""
        count = len(args) - (self.labels if self.loss is not None else 0)
        result, labels = self.model(*args[:count], **kwargs), args[count:]
        further: dict[str, torch.Tensor] = {}
        if isinstance(self.loss, SumOfLosses):
            further = self.loss.parts(result, labels)
            loss = self.loss.total(further)
        else:
            loss = scalar(result if self.loss is None else self.loss(scores(result), *labels))
            if self.outputs:
                further = {SCORES: scores(result) if self.loss is not None else logits_of(result)}
        if not self.outputs and not self.metrics:
            return loss
        return {"loss": loss, **(further if self.outputs else {}), **self._measured(result, labels)}

    def _measured(self, result: Any, labels: Sequence[Any]) -> dict[str, torch.Tensor]:
        """The metrics' values. Raises UsageError for one that is no tensor."""
        found = {}
        with torch.no_grad():
            for name, metric in self.metrics.items():
                value = metric(result if isinstance(self.loss, SumOfLosses) else scores(result), *labels)
                if not isinstance(value, torch.Tensor):
                    raise UsageError(f"metric `{name}`: expected a tensor, got {shown(value)}")
                found[name] = value.detach()
        return found


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
        raise UsageError(
            f"loss: expected a tensor of one element, got {got}; reduce it by its mean or sum, and a model returns it first"
        )
    return result.reshape(())

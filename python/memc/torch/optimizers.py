# SPDX-License-Identifier: Apache-2.0
"""PyTorch's optimizers as memc's: their options, and their state in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import torch

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import shown

OPTIMIZERS = ("none", "sgd", "adam", "adamw")

OptimizerLike = Union[str, torch.optim.Optimizer]
"""A name of memc's, or an optimizer of the model's parameters."""

STATES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum": "momentum_buffer"}
"""What memc calls an optimizer's states, and PyTorch."""

REFUSED = {"amsgrad": False, "maximize": False, "dampening": 0, "differentiable": False}
"""Options that memc has not, and the values at which they do nothing."""


@dataclass(frozen=True)
class Mapped:
    """An optimizer as `BuildGradient` takes it."""

    options: dict[str, Any]
    """Fields of `BuildGradient`."""
    optimizer: torch.optim.Optimizer | None
    """PyTorch's, which keeps the learning rate; None for one by name."""
    parameters: frozenset[int] | None = field(default=None)
    """The ids of the parameters that it updates; None: all."""
    decayless: frozenset[int] = frozenset()
    """The ids of those in groups without weight decay, where others have one."""

    def for_names(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> dict[str, Any]:
        """Fields of `BuildGradient` for parameters of these names."""
        kept = tuple(_literal(name) for name, parameter in named if id(parameter) in self.decayless)
        return {**self.options, "no_decay": kept} if kept else dict(self.options)


def _literal(name: str) -> str:
    """A pattern that a name alone matches."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def mapped(optimizer: OptimizerLike) -> Mapped:
    """memc's counterpart of an optimizer. Raises UsageError for what is none, UnsupportedError for one that memc has not, or
    options of its that memc has not."""
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise UsageError(f"optimizer: expected one of {', '.join(OPTIMIZERS)}, got {optimizer}")
        return Mapped({"optimizer": optimizer}, None)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"optimizer: expected a name or an optimizer of torch.optim, got {shown(optimizer)}")
    name = type(optimizer).__name__
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        raise UnsupportedError(f"unsupported: optimizer {name}: expected SGD, Adam or AdamW")
    found = [_options(name, group) for group in optimizer.param_groups]
    decays = {options["weight_decay"] for options in found}
    some = max(decays)
    decayless: set[int] = set()
    if len(decays) == 2 and 0.0 in decays:
        for options, group in zip(found, optimizer.param_groups):
            if options["weight_decay"] == 0.0:
                decayless |= {id(p) for p in group["params"]}
            options["weight_decay"] = some
    for options in found[1:]:
        for option, value in options.items():
            if value != found[0][option]:
                raise UnsupportedError(
                    f"unsupported: optimizer {name}: parameter groups of unlike {option}: {found[0][option]} and {value}"
                )
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) > 1:
        raise UnsupportedError(f"unsupported: optimizer {name}: parameter groups of unlike lr: {sorted(rates)}")
    owned = frozenset(id(p) for group in optimizer.param_groups for p in group["params"])
    return Mapped(found[0], optimizer, owned, frozenset(decayless))


def _options(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter group's options as fields of `BuildGradient`."""
    for option, neutral in REFUSED.items():
        if group.get(option, neutral) != neutral:
            raise UnsupportedError(f"unsupported: optimizer {name}: the option {option}={group[option]}")
    decay = float(group["weight_decay"])
    if name == "SGD":
        momentum = float(group["momentum"])
        nesterov = bool(group["nesterov"])
        return {"optimizer": "sgd", "momentum": momentum, "nesterov": nesterov, "weight_decay": decay}
    decoupled = name == "AdamW" or bool(group.get("decoupled_weight_decay"))
    beta1, beta2 = (float(beta) for beta in group["betas"])
    kind = "adamw" if decoupled else "adam"
    return {"optimizer": kind, "beta1": beta1, "beta2": beta2, "epsilon": float(group["eps"]), "weight_decay": decay}

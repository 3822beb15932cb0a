# SPDX-License-Identifier: Apache-2.0
"""Which of a module's parameters a step reads, and which it leaves as they are."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import shown

from .losses import SumOfLosses
from .optimizers import Mapped

if TYPE_CHECKING:
    from memc.frontend.torch.graph import Graph


def read_parameters(graph: Graph) -> set[str]:
    """The names of the parameters that the program's results depend on."""
    from memc.frontend.torch.importer import import_torch

    return set(import_torch(graph, trainable=True).weights)


def left_alone(model: nn.Module, chosen: Mapped, frozen: Any) -> set[str]:
    """Names of parameters that are not trained, with all names of tied ones: those that need no gradient, that the optimizer has not, or
    that fit a pattern.

    Raises UsageError for a pattern that fits no parameter, and where nothing is left to train.
    """
    if isinstance(frozen, str) or not isinstance(frozen, Sequence):
        raise UsageError(f"frozen: expected a list of patterns of names, got {shown(frozen)}")
    parameters = list(model.parameters())
    named: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        named.setdefault(id(parameter), []).append(name)
    every = [name for names in named.values() for name in names]
    for pattern in frozen:
        if not isinstance(pattern, str) or not fnmatch.filter(every, pattern):
            raise UsageError(f"frozen: {shown(pattern)} fits no parameter; they are {shown(', '.join(every))}")
    if chosen.parameters is not None and not any(id(p) in chosen.parameters for p in parameters):
        raise UsageError("optimizer: expected one of the model's parameters, got one that has none of them")
    found = set()
    for parameter in parameters:
        owned = chosen.parameters is None or id(parameter) in chosen.parameters
        tied = named[id(parameter)]
        if not parameter.requires_grad or not owned or any(fnmatch.filter(tied, pattern) for pattern in frozen):
            found.update(tied)
    if len(found) == len(every):
        got = f"{len(parameters)} that need no gradient, are frozen or not the optimizer's" if parameters else "none"
        raise UsageError(f"model: expected a parameter to train, got {got}")
    return found


def require_no_training_of(loss: Any, chosen: Mapped) -> None:
    """Raise UnsupportedError for a loss module whose parameters the optimizer has; those of others stay as they are."""
    for each in loss.losses.values() if isinstance(loss, SumOfLosses) else [loss]:
        for name, parameter in each.named_parameters() if isinstance(each, nn.Module) else ():
            if chosen.parameters is not None and parameter.requires_grad and id(parameter) in chosen.parameters:
                raise UnsupportedError(
                    f"unsupported: the loss trains its own parameter `{name}`; have the model hold it, and return the loss"
                )

# SPDX-License-Identifier: Apache-2.0
"""Optimizers and their options, with PyTorch's defaults. `updates/` has what they compute."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Optional, get_args

import numpy as np

from memc.ir.checked_options import F32_LEAST, F32_MOST, Checked, Range
from memc.ir.errors import UsageError

OptimizerName = Literal[
    "none",
    "sgd",
    "adam",
    "adamw",
    "rmsprop",
    "adagrad",
    "adadelta",
    "adamax",
    "nadam",
    "radam",
    "adafactor",
    "lion",
    "adamw8bit",
]
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)

Decay = Annotated[float, Range(least=0, below=1)]
"""What remains of a running average after a step."""
NotNegative = Annotated[float, Range(least=0, most=F32_MOST)]
Positive = Annotated[float, Range(least=F32_LEAST, most=F32_MOST)]
"""More than 0, as f32 too, in which updates are computed."""
AtLeastOne = Annotated[float, Range(least=1, most=F32_MOST)]

_ALL = ("weight_decay", "no_decay", "maximize")
_BETAS = ("beta1", "beta2")
TAKES: Mapping[OptimizerName, tuple[str, ...]] = {
    "none": (),
    "sgd": ("momentum", "nesterov", *_ALL),
    "adam": ("weight_decay", "no_decay", *_BETAS, "epsilon", "amsgrad", "maximize"),
    "adamw": ("weight_decay", "no_decay", *_BETAS, "epsilon", "amsgrad", "maximize"),
    "rmsprop": ("momentum", "alpha", "centered", "epsilon", *_ALL),
    "adagrad": ("lr_decay", "initial_accumulator", "epsilon", *_ALL),
    "adadelta": ("rho", "epsilon", *_ALL),
    "adamax": (*_BETAS, "epsilon", *_ALL),
    "nadam": (*_BETAS, "epsilon", "momentum_decay", "decoupled", *_ALL),
    "radam": (*_BETAS, "epsilon", "decoupled", *_ALL),
    "adafactor": ("decay_exponent", "epsilon", "least_scale", "clip_threshold", *_ALL),
    "lion": (*_BETAS, *_ALL),
    "adamw8bit": (*_BETAS, "epsilon", *_ALL),
}
"""Options by optimizer."""

DEFAULT_BETA2 = 0.999
BETA2: Mapping[str, float] = {"lion": 0.99}
"""beta2 where it is not given, by optimizer, and `DEFAULT_BETA2` for others; so is EPSILON."""

DEFAULT_EPSILON = 1e-8
EPSILON: Mapping[str, float] = {"adagrad": 1e-10, "adadelta": 1e-6, "adafactor": float(np.finfo(np.float32).eps)}


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Checked):
    """The options of all optimizers; `TAKES` has which of them takes which."""

    momentum: Decay = 0.0
    nesterov: bool = False
    weight_decay: NotNegative = 0.0
    no_decay: tuple[str, ...] = ()
    """Name patterns of weights that do not decay."""
    beta1: Decay = 0.9
    beta2: Optional[Decay] = None
    """None: `DEFAULT_BETA2`, or what `BETA2` has."""
    epsilon: Optional[Positive] = None
    """None: `DEFAULT_EPSILON`, or what `EPSILON` has."""
    amsgrad: bool = False
    """Divide by the largest second moment so far."""
    maximize: bool = False
    """Step along the gradient, not against it."""
    alpha: Decay = 0.99
    """Of RMSprop: what remains of its mean square."""
    centered: bool = False
    """Of RMSprop: divide by the deviation of gradients instead of their mean square."""
    lr_decay: NotNegative = 0.0
    """Of Adagrad: the rate is r / (1 + (t - 1) lr_decay)."""
    initial_accumulator: NotNegative = 0.0
    """Of Adagrad: what its sums of squares begin with."""
    rho: Decay = 0.9
    """Of Adadelta: what remains of its mean squares."""
    momentum_decay: NotNegative = 4e-3
    """Of NAdam."""
    decoupled: bool = False
    """Of NAdam and RAdam: weight decay as in AdamW."""
    decay_exponent: NotNegative = 0.8
    """Of Adafactor: a step's square has the weight 1 / t^decay_exponent in its means."""
    least_scale: NotNegative = 1e-3
    """Of Adafactor: the least root mean square of a weight that its rate is multiplied by."""
    clip_threshold: AtLeastOne = 1.0
    """Of Adafactor: the largest root mean square of an update."""


@dataclass(frozen=True)
class Optimizer(OptimizerOptions):
    """What is computed from each weight w and its gradient g at learning rate r in step t = 1, 2 ..."""

    kind: OptimizerName = "sgd"

    def owner(self) -> str:
        """What messages call it."""
        return "optimizer"

    def check(self) -> None:
        """Raise UsageError for an option that the optimizer does not have."""
        for option in fields(OptimizerOptions):
            if getattr(self, option.name) != option.default and option.name not in TAKES[self.kind]:
                takes = ", ".join(TAKES[self.kind]).replace("_", "-") or "no options"
                name = option.name.replace("_", "-")
                raise UsageError(f"optimizer {self.kind}: has no option {name}; it takes {takes}")
        if self.nesterov and not self.momentum:
            raise UsageError("optimizer sgd: nesterov needs a momentum above 0")

    @property
    def second_decay(self) -> float:
        """beta2, given or not."""
        return self.beta2 if self.beta2 is not None else BETA2.get(self.kind, DEFAULT_BETA2)

    @property
    def added(self) -> float:
        """epsilon, given or not."""
        return self.epsilon if self.epsilon is not None else EPSILON.get(self.kind, DEFAULT_EPSILON)

    def of(self, weight: str) -> Optimizer:
        """What it is for one weight: without decay for one that does not decay."""
        if self.weight_decay and any(fnmatch.fnmatchcase(weight, pattern) for pattern in self.no_decay):
            return replace(self, weight_decay=0.0, no_decay=())
        return replace(self, no_decay=()) if self.no_decay else self


def options_of(given: OptimizerOptions) -> dict[str, Any]:
    """The optimizers' options among an object's fields."""
    return {option.name: getattr(given, option.name) for option in fields(OptimizerOptions)}

# SPDX-License-Identifier: Apache-2.0
"""PyTorch's optimizers as memc's: their options by parameter group, and the names of their states."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import torch

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.passes.training.groups import patterns_of
from memc.passes.training.optimizers import OPTIMIZERS, Optimizer, options_of
from memc.runtime.execute.training import RATE

OptimizerLike = Union[str, torch.optim.Optimizer]
"""A name of memc's, or an optimizer of the model's parameters."""

STATES: Mapping[str, Mapping[str, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adam": {name: name for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")},
    "adamw": {name: name for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")},
    "rmsprop": {"square_avg": "square_avg", "grad_avg": "grad_avg", "momentum": "momentum_buffer"},
    "adagrad": {"sum": "sum"},
    "adadelta": {"square_avg": "square_avg", "acc_delta": "acc_delta"},
    "adamax": {"exp_avg": "exp_avg", "exp_inf": "exp_inf"},
    "nadam": {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
    "radam": {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
    "adafactor": {name: name for name in ("row_var", "col_var", "variance")},
}
"""What memc calls a weight's states, and PyTorch, by optimizer."""

STATE_NAMES = frozenset(name for names in STATES.values() for name in names)

REFUSED = {"dampening": 0, "differentiable": False}
"""Options that memc has not, and the values at which they do nothing."""


@dataclass(frozen=True)
class Mapped:
    """An optimizer as `BuildGradient` takes it."""

    options: dict[str, Any]
    """Fields of `BuildGradient`: those of the first parameter group."""
    optimizer: torch.optim.Optimizer | None
    """PyTorch's, which keeps learning rates; None for one by name."""
    groups: tuple[tuple[dict[str, Any], frozenset[int]], ...] = field(default=())
    """Fields of `BuildGradient` by parameter group, with the ids of its parameters."""

    @property
    def kind(self) -> str:
        """memc's name of it."""
        return str(self.options["optimizer"])

    @property
    def parameters(self) -> frozenset[int] | None:
        """The ids of the parameters that it updates; None: all."""
        return None if self.optimizer is None else frozenset().union(*(ids for _, ids in self.groups))

    def for_names(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> dict[str, Any]:
        """Fields of `BuildGradient` for parameters of these names."""
        texts = [self._text(options, names) for _, options, names in self._named(named)]
        return {**self.options, "groups": tuple(texts)} if texts else dict(self.options)

    def rates(self, texts: Sequence[str], named: Iterable[tuple[str, torch.nn.Parameter]]) -> dict[str, int]:
        """By name of an input, the parameter group whose learning rate it is; `texts` are the groups of the step."""
        listed, found = list(named), {RATE: 0}
        for place, text in enumerate(texts, 1):
            patterns = patterns_of(text)
            ids = {id(p) for name, p in listed if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}
            found[f"{RATE}.{place}"] = next(n for n, (_, own) in enumerate(self.groups) if own & ids)
        return found

    def _named(self, named: Iterable[tuple[str, torch.nn.Parameter]]) -> list[tuple[int, dict[str, Any], list[str]]]:
        """The groups behind the first that have parameters among those: number, options, names."""
        listed = list(named)
        found = []
        for number, (options, ids) in enumerate(self.groups[1:], 1):
            names = [name for name, parameter in listed if id(parameter) in ids]
            if names:
                found.append((number, options, names))
        return found

    def _text(self, options: Mapping[str, Any], names: Iterable[str]) -> str:
        own = ["own-rate=true"]
        for name, value in options.items():
            if value != self.options[name]:
                said = str(value).lower() if isinstance(value, bool) else repr(value)
                own.append(f"{name.replace('_', '-')}={said}")
        return f"{'|'.join(map(_literal, names))}: {' '.join(own)}"


def _literal(name: str) -> str:
    """A pattern that a name alone matches; it has none of the characters that separate a group's text."""
    return "".join(f"[{c}]" if c in "*?[" else "?" if c in "| " else c for c in name)


def mapped(optimizer: OptimizerLike, options: Mapping[str, Any] | None = None) -> Mapped:
    """memc's counterpart of an optimizer; `options` are those of one by name. Raises UsageError for what is none, UnsupportedError
    for one that memc has not, or options of its that memc has not."""
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise UsageError(f"optimizer: expected one of {', '.join(OPTIMIZERS)}, got {optimizer}")
        unknown = set(options or {}) - set(options_of(Optimizer()))
        if unknown:
            raise UsageError(f"optimizer_options: expected options of {optimizer}, got {', '.join(sorted(unknown))}")
        return Mapped({"optimizer": optimizer, **(options or {})}, None)
    if options:
        raise UsageError("optimizer_options: expected an optimizer by name; one of torch.optim has its own")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"optimizer: expected a name or an optimizer of torch.optim, got {shown(optimizer)}")
    name = type(optimizer).__name__
    reader = READERS.get(name)
    if reader is None or type(optimizer) is not getattr(torch.optim, name, None):
        raise UnsupportedError(f"unsupported: optimizer {name}: expected {', '.join(READERS)} of torch.optim")
    found = []
    for group in optimizer.param_groups:
        _require_neutral(name, group)
        found.append(({**reader(group), **_common(group)}, frozenset(id(p) for p in group["params"])))
    _require_alike(name, [each for each, _ in found])
    return Mapped(found[0][0], optimizer, tuple(found))


def _require_neutral(name: str, group: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for an option that memc has not."""
    for option, neutral in REFUSED.items():
        if group.get(option, neutral) != neutral:
            raise UnsupportedError(f"unsupported: optimizer {name}: the option {option}={group[option]}")


ONE_FOR_ALL = {"nadam": ("beta1", "momentum_decay")}
"""Options that all groups must share, as a state that all weights share depends on them."""


def _require_alike(name: str, found: list[dict[str, Any]]) -> None:
    """Raise UnsupportedError for groups of different rules, or of options that one state is of."""
    for options in found[1:]:
        for option in ("optimizer", *ONE_FOR_ALL.get(options["optimizer"], ())):
            if options[option] != found[0][option]:
                raise UnsupportedError(
                    f"unsupported: optimizer {name}: parameter groups of unlike {option}: {found[0][option]} and {options[option]}"
                )


Reader = Callable[[Mapping[str, Any]], dict[str, Any]]
"""A parameter group's own options as fields of `BuildGradient`."""


def _common(group: Mapping[str, Any]) -> dict[str, Any]:
    """What all optimizers have."""
    return {"weight_decay": float(group["weight_decay"]), "maximize": bool(group.get("maximize", False))}


def _sgd(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"optimizer": "sgd", "momentum": float(group["momentum"]), "nesterov": bool(group["nesterov"])}


def _betas(group: Mapping[str, Any]) -> dict[str, Any]:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    return {"beta1": beta1, "beta2": beta2, "epsilon": float(group["eps"])}


def _adam(group: Mapping[str, Any]) -> dict[str, Any]:
    kind = "adamw" if group.get("decoupled_weight_decay") else "adam"
    return {"optimizer": kind, **_betas(group), "amsgrad": bool(group["amsgrad"])}


def _adamw(group: Mapping[str, Any]) -> dict[str, Any]:
    return {**_adam(group), "optimizer": "adamw"}


def _adamax(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"optimizer": "adamax", **_betas(group)}


def _radam(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"optimizer": "radam", **_betas(group), "decoupled": bool(group.get("decoupled_weight_decay"))}


def _nadam(group: Mapping[str, Any]) -> dict[str, Any]:
    return {**_radam(group), "optimizer": "nadam", "momentum_decay": float(group["momentum_decay"])}


def _rmsprop(group: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"alpha": float(group["alpha"]), "epsilon": float(group["eps"]), "momentum": float(group["momentum"])}
    return {"optimizer": "rmsprop", **numbers, "centered": bool(group["centered"])}


def _adagrad(group: Mapping[str, Any]) -> dict[str, Any]:
    first = float(group["initial_accumulator_value"])
    decay, epsilon = float(group["lr_decay"]), float(group["eps"])
    return {"optimizer": "adagrad", "lr_decay": decay, "initial_accumulator": first, "epsilon": epsilon}


def _adadelta(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"optimizer": "adadelta", "rho": float(group["rho"]), "epsilon": float(group["eps"])}


def _adafactor(group: Mapping[str, Any]) -> dict[str, Any]:
    first, least = group["eps"]
    found = {"decay_exponent": -float(group["beta2_decay"]), "clip_threshold": float(group["d"])}
    return {"optimizer": "adafactor", **found, "epsilon": _epsilon(first, group), "least_scale": float(least)}


def _epsilon(given: float | None, group: Mapping[str, Any]) -> float:
    """Adafactor's first eps, which is that of each parameter's type if it is not given. Raises UnsupportedError for a group of several."""
    if given is not None:
        return float(given)
    types = sorted({p.dtype for p in group["params"]}, key=str)
    if len(types) > 1:
        raise UnsupportedError(
            f"unsupported: optimizer Adafactor: a parameter group of {', '.join(map(str, types))} without eps"
        )
    return float(torch.finfo(types[0] if types else torch.float32).eps)


READERS: Mapping[str, Reader] = {
    "SGD": _sgd,
    "Adam": _adam,
    "AdamW": _adamw,
    "RMSprop": _rmsprop,
    "Adagrad": _adagrad,
    "Adadelta": _adadelta,
    "Adamax": _adamax,
    "NAdam": _nadam,
    "RAdam": _radam,
    "Adafactor": _adafactor,
}
"""By class of torch.optim."""

# SPDX-License-Identifier: Apache-2.0
"""The state of PyTorch's optimizer as a compiled step's: moments over the same bytes, steps counted alike, options as compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memc.ir.errors import UsageError

from .optimizers import STATES, Mapped

if TYPE_CHECKING:
    from memc.passes.training.build_gradient import BuildGradient

STEP = "step"

PRODUCT = "mu_product"
"""The product of NAdam's momenta so far, which PyTorch keeps for each parameter and memc once."""

END = object()

OPTIONS = (
    "betas",
    "momentum",
    "eps",
    "weight_decay",
    "nesterov",
    "dampening",
    "amsgrad",
    "maximize",
    "differentiable",
    "decoupled_weight_decay",
    "alpha",
    "centered",
    "lr_decay",
    "rho",
    "momentum_decay",
    "beta2_decay",
    "d",
)
"""Options of a parameter group that a step is compiled for."""

CYCLED = ("betas", "momentum")
"""Those that OneCycleLR and CyclicLR move, unless they are told not to."""


class SharedMoments:
    """An optimizer's state that lies in a step's memory. Before each call, `enter` sees what was done to the optimizer since the
    last one, in microseconds if that is nothing; after it, `leave` counts the step for PyTorch, too."""

    def __init__(
        self,
        chosen: Mapped,
        parameters: Mapping[str, nn.Parameter],
        views: Mapping[str, torch.Tensor],
        how: BuildGradient | None,
    ) -> None:
        """`how`: what made the step; None where that is not known."""
        optimizer = chosen.optimizer
        assert optimizer is not None
        self.optimizer = optimizer
        self._rates = list(chosen.rates(() if how is None else how.groups, parameters.items()).items())
        self._views = views
        self._compiled = [_options(group) for group in optimizer.param_groups]
        self._sizes = [len(group["params"]) for group in optimizer.param_groups]
        self._parameters = dict(parameters)
        self._own: dict[str, dict[str, torch.Tensor]] = {}
        """By name of a parameter, its state as PyTorch names it."""
        for name in parameters:
            names = STATES[chosen.kind].items()
            own = {theirs: views[f"{name}.{mine}"] for mine, theirs in names if f"{name}.{mine}" in views}
            if own:
                self._own[name] = own
        counted = list(self._own) if chosen.kind != "sgd" else []
        self._first = float(optimizer.defaults.get("initial_accumulator_value", 0))
        """What states begin with."""
        self._products = [view for name, view in views.items() if name.partition(".")[0] == PRODUCT]
        with torch.inference_mode(False), torch.no_grad():
            self._steps = torch.zeros(len(counted), dtype=torch.float32, device=self._device_of_steps())
            """What each parameter's count of steps is an element of: they share a version, which every write moves."""
            self._shared = torch.ones(len(counted), dtype=torch.float32, device=self._device_of_steps())
            """So with NAdam's products."""
            for number, name in enumerate(counted):
                shared = {PRODUCT: self._shared[number]} if self._products else {}
                self._own[name] = {STEP: self._steps[number], **shared, **self._own[name]}
        self._version = -1
        self._seen: list[object] = []
        skips = how is None or how.loss_scale is not None or how.check_labels
        self._reads = STEP in views and (views[STEP].device.type == "cpu" or skips)
        """Whether the artifact's count is read after a step: where that waits for no device, or a step may be left out."""
        self.adopt()

    def enter(self) -> dict[str, float]:
        """The learning rates of the next step by input, for which the artifact has the optimizer's state as it is now. Raises UsageError
        where the optimizer is no longer what was compiled."""
        self._require_options()
        rates = self.rates()
        self.follow()
        return rates

    def follow(self) -> None:
        """Have the optimizer's state as it is now in the step's memory, if anything was done to it since the last call."""
        if not all(map(is_, self._objects(), self._seen)):
            self.adopt()
        elif self._steps._version != self._version:
            self._recount(dict(zip(self._counted(), self._steps.tolist())))
            for view in self._products:
                view.fill_(float(self._shared[0]))

    def leave(self) -> None:
        """Have the optimizer count a step that was taken."""
        with torch.no_grad():
            if self._reads:
                self._steps.fill_(float(self._views[STEP]))
            else:
                self._steps.add_(1)
            if self._products:
                self._shared.fill_(float(self._products[0]))
        self._version = self._steps._version
        self.optimizer._opt_called = True  # Else a scheduler's first step warns that the optimizer has taken none.

    def reread(self) -> None:
        """Have the optimizer count as the artifact does, whose state was read from a file."""
        for name, own in self._own.items():
            self.optimizer.state[self._parameters[name]] = dict(own)
        if STEP in self._views:
            self._recount(dict.fromkeys(self._counted(), float(self._views[STEP])))
        if self._products:
            self._shared.fill_(float(self._products[0]))
        self._seen = list(self._objects())

    def rates(self) -> dict[str, float]:
        """The learning rates by input, as the optimizer's groups have them now."""
        groups = self.optimizer.param_groups
        return {name: float(groups[number]["lr"]) for name, number in self._rates}

    def adopt(self) -> None:
        """Take over what the optimizer's state is now, zeros where it has none, and have it lie in the step's memory again.
        Raises UsageError, having changed nothing, where that is no state of these parameters."""
        state = self.optimizer.state
        found = {name: dict(state.get(self._parameters[name], {})) for name in self._own}
        steps = {name: float(found[name].get(STEP, 0)) for name in self._counted()}
        products = [float(found[name].get(PRODUCT, 1.0)) for name in self._counted()]
        self._require_one_count(steps)
        for name, own in self._own.items():
            for theirs, view in own.items():
                given = found[name].get(theirs)
                if theirs != STEP and given is not None and given.shape != view.shape:
                    raise UsageError(
                        f"optimizer: `{theirs}` of `{name}`: expected shape {list(view.shape)}, got {list(given.shape)}"
                    )
        with torch.no_grad():
            for name, own in self._own.items():
                for theirs, view in own.items():
                    given = found[name].get(theirs)
                    if theirs in (STEP, PRODUCT) or given is view:
                        continue
                    view.fill_(self._first) if given is None else view.copy_(given)
                state[self._parameters[name]] = dict(own)
            for view in self._products:
                view.fill_(products[0])
            self._shared.fill_(products[0] if products else 1.0)
        self._recount(steps)
        self._seen = list(self._objects())

    def _require_one_count(self, steps: Mapping[str, float]) -> None:
        """Raise UsageError where parameters have taken unlike numbers of steps, and the artifact counts for all."""
        if STEP in self._views:
            _agreed(steps.items())

    def _recount(self, steps: Mapping[str, float]) -> None:
        """Set the counts of steps of both sides. Raises UsageError as `_require_one_count` does."""
        self._require_one_count(steps)
        with torch.no_grad():
            self._steps.copy_(torch.tensor(list(steps.values()), dtype=torch.float32))
            if STEP in self._views and steps:
                self._views[STEP].fill_(int(next(iter(steps.values()))))
        self._version = self._steps._version

    def _counted(self) -> list[str]:
        """The parameters whose steps are counted."""
        return [name for name, own in self._own.items() if STEP in own]

    def _objects(self) -> Iterator[object]:
        """What the optimizer's state is of, and END, so that no shorter or longer one is the same."""
        return chain(chain.from_iterable(map(dict.values, self.optimizer.state.values())), (END,))

    def _device_of_steps(self) -> torch.device:
        """Where PyTorch wants counts of steps."""
        group = self.optimizer.param_groups[0]
        on_device = bool(group.get("fused") or group.get("capturable"))
        return group["params"][0].device if on_device else torch.device("cpu")

    def _require_options(self) -> None:
        """Raise UsageError unless the options are those that were compiled."""
        groups = self.optimizer.param_groups
        sizes = [len(group["params"]) for group in groups]
        if sizes != self._sizes:
            raise UsageError(
                f"optimizer: its parameter groups had {self._sizes} parameters when the step was compiled and have"
                f" {sizes} now: compile again"
            )
        for number, (group, before) in enumerate(zip(groups, self._compiled)):
            now = _options(group)
            if now == before:
                continue
            option, old, new = next((o, a, b) for o, a, b in zip(OPTIONS, before, now) if a != b)
            hint = ", or give the scheduler cycle_momentum=False" if option in CYCLED else ""
            raise UsageError(
                f"optimizer: {option} of parameter group {number} was {old} when the step was compiled and is {new} now:"
                f" compile again{hint}"
            )


def _options(group: Mapping[str, Any]) -> tuple[Any, ...]:
    """A group's values of OPTIONS."""
    return tuple(_plain(group.get(option)) for option in OPTIONS)


def _plain(value: Any) -> Any:
    """An option's value, which later writes to it do not change."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    return float(value) if isinstance(value, torch.Tensor) else value


def _agreed(counts: Iterable[tuple[str, float]]) -> float:
    """The number of steps that all parameters have taken. Raises UsageError where they differ."""
    listed = list(counts)
    for name, count in listed:
        if count != listed[0][1]:
            raise UsageError(
                f"optimizer: `{listed[0][0]}` has taken {listed[0][1]:g} steps and `{name}` {count:g}: a compiled step counts"
                " one for all; set `step` of their states alike"
            )
    return listed[0][1] if listed else 0.0

# SPDX-License-Identifier: Apache-2.0
"""What an artifact says of the optimizer that its step was compiled for, and whether another is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from memc.ir.errors import MemcError, UsageError
from memc.passes.manager import PassManager
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.groups import group_of, parse_groups
from memc.passes.training.optimizers import Optimizer, options_of
from memc.runtime.execute.training import TrainingStep

from .optimizers import Mapped

Named = Iterable[tuple[str, torch.nn.Parameter]]


def compiled_options(executable: TrainingStep) -> BuildGradient | None:
    """How a step was made of its model; None where its pipeline has passes that are not known here."""
    try:
        passes = PassManager.parse(str(executable.manifest.report.get("pipeline", ""))).passes
    except MemcError:
        return None
    return next((item for item in passes if isinstance(item, BuildGradient)), None)


def require_compiled_for(executable: TrainingStep, chosen: Mapped, named: Named) -> None:
    """Raise UsageError unless an optimizer of torch.optim has the options that a step's weights were compiled with."""
    how = compiled_options(executable)
    if how is None or chosen.optimizer is None:
        return
    trained = [(name, parameter) for name, parameter in named if name in executable.states]
    missing = [name for name, p in trained if chosen.parameters is not None and id(p) not in chosen.parameters]
    if missing:
        raise UsageError(f"{executable.manifest.path}: the step trains `{missing[0]}`, which the optimizer has not")
    names = [name for name, _ in trained]
    wanted = _settings(how, names)
    given = _settings(BuildGradient(loss="output", **chosen.for_names(trained)), names)
    for name in names:
        (there, place), (here, own) = wanted[name], given[name]
        for option, old in there.items():
            if old != here[option]:
                raise UsageError(
                    f"{executable.manifest.path}: `{name}`: the step was compiled for {option} {old}, and the optimizer has"
                    f" {here[option]}: compile again"
                )
        if place != own:
            raise UsageError(
                f"{executable.manifest.path}: `{name}` is in another parameter group than when the step was compiled: compile again"
            )


def _settings(how: BuildGradient, names: Sequence[str]) -> dict[str, tuple[dict[str, Any], int]]:
    """By weight, the options of what it is updated by, and the number of its learning rate."""
    base = Optimizer(kind=how.optimizer, **options_of(how))
    groups = parse_groups(how.groups, base)
    found = {}
    for name in names:
        number = group_of(name, groups)
        options = (groups[number - 1].optimizer if number else base).of(name)
        spelled = {"optimizer": options.kind, **options_of(options)}
        spelled |= {"beta2": options.second_decay, "epsilon": options.added}
        found[name] = spelled, number if number and groups[number - 1].own_rate else 0
    return found

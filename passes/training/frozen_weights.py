# SPDX-License-Identifier: Apache-2.0
"""Which weights of a model a training step changes: all floats but constants and those of frozen names."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from memc.ir.core import Function, Role, Value
from memc.ir.errors import UsageError
from memc.ir.module import Module


def train_weights(module: Module, function: Function, frozen: Sequence[str]) -> list[Value]:
    """Make the float weights states, but for constants and frozen ones; returns them without running statistics."""
    statistics = {v for op in function.ops if op.name == "batch_norm" for v in op.operands[3:]}
    require_names(function, frozen)
    trained = []
    for param in function.params_of(Role.WEIGHT):
        if not param.type.dtype.is_float or param.name in module.constants:
            continue
        if any(fnmatch.fnmatchcase(param.name, pattern) for pattern in frozen):
            continue
        if param not in statistics:
            trained.append(param)
        param.role = Role.STATE
    return trained


def require_names(function: Function, frozen: Sequence[str]) -> None:
    """Raise UsageError for a pattern that fits no weight."""
    for pattern in frozen:
        if not fits_some(function, pattern):
            raise UsageError(f"build-gradient: no weight has a name like {pattern!r}")


def fits_some(function: Function, pattern: str) -> bool:
    """Whether a weight has a name like the pattern, as in shells."""
    return any(fnmatch.fnmatchcase(p.name, pattern) for p in function.params_of(Role.WEIGHT))

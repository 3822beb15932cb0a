# SPDX-License-Identifier: Apache-2.0
"""The passes of a compilation: a head, which makes the program that is compiled (a training step of a model, in a precision),
and behind it those of a level, or of a given pipeline, which plan its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from memc.ir.errors import UsageError
from memc.passes.base import Pass
from memc.passes.kernels.fuse import Fuse
from memc.passes.manager import PassManager
from memc.passes.pipelines import HALVES, Precision
from memc.passes.precision.mixed_precision import MixedPrecision
from memc.passes.precision.narrow_products import NarrowProducts
from memc.passes.precision.set_precision import SetPrecision
from memc.passes.training.build_gradient import BuildGradient


def with_head(body: Sequence[Pass], train: BuildGradient | None, precision: Precision) -> PassManager:
    """The manager of `body`, with what makes a training step in front of it; without `train` it has no head."""
    head = [] if train is None else training_head(train, precision)
    return PassManager([*head, *body], head=len(head))


def training_head(train: BuildGradient, precision: Precision) -> list[Pass]:
    """What makes a training step of a model in a precision: weights and their updates stay in f32. Attention is looked for
    before anything is rounded, by the pass that makes the gradient."""
    if precision not in HALVES:
        return [train]
    first, train, *rest = _rounded_head(train, precision)
    return [replace(train, half=first.to), *rest] if train.attention else [first, train, *rest]


def _rounded_head(train: BuildGradient, precision: Precision) -> tuple[MixedPrecision, BuildGradient, NarrowProducts]:
    """The same in half precision, where the model is rounded first of all."""
    if precision == "f16" and train.loss_scale is None:
        train = replace(train, loss_scale="dynamic")
    return MixedPrecision("f16" if precision == "f16" else "bf16", weights="keep"), train, NarrowProducts()


def body_precision(train: BuildGradient | None, precision: Precision) -> Precision:
    """The precision that the passes behind the head still have to set: a head has rounded to half precision."""
    return "f32" if train is not None and precision in HALVES else precision


def in_precision(passes: Sequence[Pass], precision: Precision) -> list[Pass]:
    """A given pipeline, in a precision; a gradient that it makes gets what belongs to it."""
    if precision == "f32":
        return list(passes)
    if precision == "tf32":
        return [*passes, SetPrecision("tf32")]
    for number, train in enumerate(passes):
        if isinstance(train, BuildGradient):
            first, *rest = _rounded_head(train, precision)
            return [first, *passes[:number], *rest, *passes[number + 1 :]]
    return [MixedPrecision(precision), *passes]


def without(passes: Sequence[Pass], disabled: Collection[str]) -> list[Pass]:
    """The passes but for those of the names `disabled`. Raises UsageError for a name that none has."""
    present = {item.name for item in passes}
    for name in disabled:
        if name not in present:
            raise UsageError(f"disabled pass `{name}`: expected one of {', '.join(sorted(present))}")
    return [item for item in passes if item.name not in disabled]


def fusing_apart(passes: Sequence[Pass], apart: Collection[str]) -> list[Pass]:
    """The passes, where `fuse` leaves the groups with results `apart` unfused."""
    return [
        replace(item, apart=tuple(sorted({*item.apart, *apart}))) if apart and isinstance(item, Fuse) else item
        for item in passes
    ]

# SPDX-License-Identifier: Apache-2.0
"""Loss scaling for gradients in f16: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.

The loss is multiplied by a scale, so that small gradients do not vanish in f16, and the gradients of the weights, in f32, are
divided by it before anything else is done with them. In a step with an infinite gradient or a nan, no state changes but the
scale and dropout's counter. A dynamic scale then halves, and doubles after `GROWTH` steps that went well; it and the number of
those steps are states, so that a restored step goes on with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memc.ir.build import IRBuilder
from memc.ir.checked_options import F32_LEAST, F32_MOST
from memc.ir.core import Value
from memc.ir.errors import UsageError
from memc.ir.messages import nearest
from memc.ir.ops.shared.casts import HALF, cast
from memc.ir.ops.shared.derivatives import again, scaled
from memc.ir.types import DType, TensorType
from memc.passes.training.updates.rule import StateFn

SCALE, GOOD = "loss_scale", "loss_scale.good_steps"
"""Names of the states."""

FIRST = 2.0**16
LEAST, MOST = 2.0**-24, 2.0**126
"""The limits of a dynamic scale, which always stays a power of two that halving and doubling bring back."""

GROWTH = 2000
"""Steps without overflow after which the scale doubles."""


def first_scale(given: str | float) -> float:
    """What `dynamic` begins with, or the number that is given, as text too. Raises UsageError for anything else."""
    if given == "dynamic":
        return FIRST
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not F32_LEAST <= value <= F32_MOST:
        near = nearest(given, ["dynamic"]) if isinstance(given, str) else ""
        raise UsageError(f"loss scale: expected dynamic or a positive number that f32 has, got {given!r}{near}")
    return value


@dataclass(frozen=True)
class LossScale:
    """The scale of a training step that is being written."""

    factor: Value
    """f32[]."""
    good_steps: Value | None
    """i64[], the state; None for a fixed scale."""


def loss_scale(b: IRBuilder, given: str | float, state: StateFn) -> LossScale:
    """The scale that `first_scale` takes, with its states if it is dynamic."""
    first = first_scale(given)
    if given != "dynamic":
        return LossScale(b.scalar(first, DType.F32), None)
    factor = state(SCALE, TensorType(DType.F32, ()), np.array(first, np.float32))
    return LossScale(factor, state(GOOD, TensorType(DType.I64, ()), np.zeros((), np.int64)))


def scaled_loss(b: IRBuilder, scale: LossScale, loss: Value) -> Value:
    """What the gradients are of."""
    return b.op("mul", [loss, cast(b, scale.factor, loss.type.dtype)])


def unscaled(
    b: IRBuilder, scale: LossScale, gradients: Sequence[tuple[Value, Value]]
) -> tuple[list[tuple[Value, Value]], Value]:
    """The gradients of the loss itself, and whether all of them are finite (bool[])."""
    greatest = None
    for _, g in gradients:
        size = b.op("abs", [_read(b, g, 1)])
        if g.type.rank:
            size = b.op("reduce_max", [size], axes=tuple(range(g.type.rank)), keepdims=False)
        size = cast(b, size, DType.F32)
        greatest = size if greatest is None else b.op("max", [greatest, size])
    assert greatest is not None
    # A nan is the maximum of all, and no less than anything.
    finite = b.op("less_equal", [greatest, b.scalar(F32_MOST, DType.F32)])
    inverse = b.op("reciprocal", [scale.factor])
    return [(w, b.op("mul", [_read(b, g, 2), cast(b, inverse, g.type.dtype)])) for w, g in gradients], finite


def _read(b: IRBuilder, gradient: Value, time: int) -> Value:
    """A gradient for one reader: one that is half is widened for each, so that nothing keeps it in f32."""
    op = gradient.op
    if op is None or op.name != "cast" or op.operands[0].type.dtype not in HALF:
        return gradient
    return again(b, "cast", [op.operands[0]], time, to=gradient.type.dtype)


def moved(b: IRBuilder, scale: LossScale, finite: Value) -> Mapping[Value, Value]:
    """The new content of the scale's states."""
    if scale.good_steps is None:
        return {}
    factor = scale.factor
    good = b.op("add", [scale.good_steps, b.scalar(1, DType.I64)])
    grows = b.op("equal", [good, b.scalar(GROWTH, DType.I64)])
    none = b.scalar(0, DType.I64)
    doubled = b.op("min", [scaled(b, factor, 2.0), b.scalar(MOST, DType.F32)])
    larger = b.op("select", [grows, doubled, factor])
    smaller = b.op("max", [scaled(b, factor, 0.5), b.scalar(LEAST, DType.F32)])
    return {
        factor: b.op("select", [finite, larger, smaller]),
        scale.good_steps: b.op("select", [finite, b.op("select", [grows, none, good]), none]),
    }


def kept_unless(b: IRBuilder, finite: Value, state: Value, content: Value) -> Value:
    """The new content of a state, or the old one in a step that is skipped."""
    return b.op("select", [finite, content, state])

# SPDX-License-Identifier: Apache-2.0
"""Adafactor (Shazeer and Stern 2018): the second moment of a matrix as its means over rows and over columns.

As in PyTorch, a weight of more than two axes is a stack of matrices along its last two, there is no first moment, and the rate is
relative to the root mean square of the weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.casts import HALF, cast
from memc.ir.ops.shared.derivatives import square
from memc.ir.types import DType, TensorType
from memc.passes.training.optimizers import Optimizer

from .rule import Clock, First, Site, UpdateRule


def _states(options: Optimizer, type: TensorType) -> First:
    if type.rank < 2:
        return {"variance": (type, 0.0)}
    shape = type.shape
    rows, columns = type.with_shape((*shape[:-1], 1)), type.with_shape((*shape[:-2], 1, shape[-1]))
    return {"row_var": (rows, 0.0), "col_var": (columns, 0.0)}


def _scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    """The weight of this step's squares, t^-decay_exponent, and min(rate, 1 / sqrt(t))."""
    assert clock.step is not None
    share = clock.b.op("pow", [clock.step, clock.f64(-options.decay_exponent)])
    return clock.f32(share, clock.op("min", clock.wide_rate(), clock.op("rsqrt", clock.step)))


def _moved(site: Site, state: str, x: Value) -> Value:
    """A running mean that moves by a share of its distance to x."""
    old = site.states[state]
    return site.assign(old, site.op("add", old, site.by(site.op("sub", x, old), site.scalars[0])))


def _mean(site: Site, x: Value, axis: int) -> Value:
    """The mean along one axis, which stays with extent 1."""
    return site.b.op("reduce_mean", [x], axes=(axis,), keepdims=True)


def _wide(site: Site) -> DType:
    """What numbers of whole weights are computed in, as their squares and rates need more digits than halves have."""
    dtype = site.weight.type.dtype
    return DType.F32 if dtype in HALF else dtype


def _wide_op(site: Site, name: str, x: Value, number: float) -> Value:
    return site.b.op(name, [x, site.b.scalar(number, x.type.dtype)])


def _root_mean_square(site: Site, x: Value) -> Value:
    """sqrt(mean(x^2)), a scalar."""
    squares = square(site.b, cast(site.b, x, _wide(site)))
    if x.type.rank:
        squares = site.b.op("reduce_mean", [squares], axes=tuple(range(x.type.rank)), keepdims=False)
    return site.b.op("sqrt", [squares])


def _update(site: Site) -> None:
    o, g, rank = site.options, site.gradient, site.weight.type.rank
    scale = _wide_op(site, "max", _root_mean_square(site, site.weight), o.least_scale)
    scale = site.by(scale, site.scalars[1])
    if rank < 2:
        variance = _moved(site, "variance", square(site.b, g))
    else:
        rows = _moved(site, "row_var", _mean(site, square(site.b, g), rank - 1))
        columns = _moved(site, "col_var", _mean(site, square(site.b, g), rank - 2))
        total = site.op("max", _mean(site, rows, rank - 2), o.added)
        variance = site.op("div", site.op("mul", rows, columns), total)
    direction = site.op("mul", site.op("rsqrt", site.op("max", variance, o.added * o.added)), g)
    size = site.by(_root_mean_square(site, direction), 1 / o.clip_threshold)
    scale = site.b.op("div", [scale, _wide_op(site, "max", size, 1.0)])
    site.assign(site.weight, site.op("sub", site.decayed_weight(), site.by(direction, scale)))


ADAFACTOR = UpdateRule(_states, _update, _scalars, counts=True)

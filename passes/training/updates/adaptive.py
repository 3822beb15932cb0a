# SPDX-License-Identifier: Apache-2.0
"""Adagrad (Duchi et al. 2011), RMSprop (Tieleman and Hinton 2012; centered: Graves 2013), Adadelta (Zeiler 2012)."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.derivatives import square
from memc.ir.types import TensorType
from memc.passes.training.optimizers import Optimizer

from .rule import Clock, First, Site, UpdateRule, zeros_like


def _adagrad_states(options: Optimizer, type: TensorType) -> First:
    return {"sum": (type, options.initial_accumulator)}


def _adagrad_scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    """rate / (1 + (t - 1) lr_decay)."""
    assert clock.step is not None
    slowed = clock.op("add", clock.op("mul", clock.op("sub", clock.step, 1.0), options.lr_decay), 1.0)
    return clock.f32(clock.op("div", clock.wide_rate(), slowed))


def _adagrad(site: Site) -> None:
    g, old = site.decayed_gradient(), site.states["sum"]
    total = site.assign(old, site.op("add", old, square(site.b, g)))
    deviation = site.op("add", site.op("sqrt", total), site.options.added)
    site.assign(site.weight, site.op("sub", site.weight, site.by(site.op("div", g, deviation), site.scalars[0])))


def _rmsprop_states(options: Optimizer, type: TensorType) -> First:
    names = ["square_avg", *(["grad_avg"] if options.centered else []), *(["momentum"] if options.momentum else [])]
    return {name: (type, 0.0) for name in names}


def _rmsprop(site: Site) -> None:
    o, g = site.options, site.decayed_gradient()
    mean = site.mean("square_avg", square(site.b, g), o.alpha)
    if o.centered:
        mean = site.op("sub", mean, square(site.b, site.mean("grad_avg", g, o.alpha)))
    step = site.op("div", g, site.op("add", site.op("sqrt", mean), o.added))
    if o.momentum:
        old = site.states["momentum"]
        step = site.assign(old, site.op("add", site.by(old, o.momentum), step))
    site.assign(site.weight, site.op("sub", site.weight, site.by(step, site.rate)))


def _adadelta(site: Site) -> None:
    o, g = site.options, site.decayed_gradient()
    squares = site.mean("square_avg", square(site.b, g), o.rho)
    before = site.op("sqrt", site.op("add", site.states["acc_delta"], o.added))
    delta = site.op("mul", site.op("div", before, site.op("sqrt", site.op("add", squares, o.added))), g)
    site.assign(site.weight, site.op("sub", site.weight, site.by(delta, site.rate)))
    site.mean("acc_delta", square(site.b, delta), o.rho)


ADAGRAD = UpdateRule(_adagrad_states, _adagrad, _adagrad_scalars, counts=True)
RMSPROP = UpdateRule(_rmsprop_states, _rmsprop)
ADADELTA = UpdateRule(zeros_like("square_avg", "acc_delta"), _adadelta)

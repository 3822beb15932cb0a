# SPDX-License-Identifier: Apache-2.0
"""Adam and Adamax (Kingma and Ba 2015), AMSGrad (Reddi et al. 2018), AdamW (Loshchilov and Hutter 2019), NAdam (Dozat 2016) and
RAdam (Liu et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Value
from memc.ir.ops.shared.derivatives import square
from memc.ir.types import TensorType
from memc.passes.training.optimizers import Optimizer

from .rule import Clock, First, Site, UpdateRule, zeros_like


def adam_scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    """rate / (1 - beta1^t), and 1 / sqrt(1 - beta2^t)."""
    first, second = (clock.op("sub", 1.0, clock.power(beta)) for beta in (options.beta1, options.second_decay))
    return clock.f32(clock.op("div", clock.wide_rate(), first), clock.op("rsqrt", second))


def _adam_states(options: Optimizer, type: TensorType) -> First:
    names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if options.amsgrad else [])]
    return {name: (type, 0.0) for name in names}


def _moments(site: Site, g: Value) -> tuple[Value, Value]:
    """The running means of the gradient and of its square."""
    o = site.options
    return site.mean("exp_avg", g, o.beta1), site.mean("exp_avg_sq", square(site.b, g), o.second_decay)


def _move(site: Site, base: Value, g: Value) -> None:
    first, second = _moments(site, g)
    if site.options.amsgrad:
        largest = site.states["max_exp_avg_sq"]
        second = site.assign(largest, site.op("max", largest, second))
    deviation = site.op("add", site.by(site.op("sqrt", second), site.scalars[1]), site.options.added)
    site.assign(site.weight, site.op("sub", base, site.op("div", site.by(first, site.scalars[0]), deviation)))


def _adam(site: Site) -> None:
    _move(site, site.weight, site.decayed_gradient())


def _adamw(site: Site) -> None:
    _move(site, site.decayed_weight(), site.gradient)


def _adamax_scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    return clock.f32(clock.op("div", clock.wide_rate(), clock.op("sub", 1.0, clock.power(options.beta1))))


def _adamax(site: Site) -> None:
    o, g = site.options, site.decayed_gradient()
    first, old = site.mean("exp_avg", g, o.beta1), site.states["exp_inf"]
    largest = site.op("max", site.by(old, o.second_decay), site.op("add", site.op("abs", g), o.added))
    largest = site.assign(old, largest)
    step = site.by(site.op("div", first, largest), site.scalars[0])
    site.assign(site.weight, site.op("sub", site.weight, step))


MU_PRODUCT = "mu_product"
"""The state of NAdam that all weights share: the product of its momenta so far."""


def _nadam_scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    """What the gradient and its mean are multiplied by, and 1 / sqrt(1 - beta2^t)."""
    assert clock.step is not None

    def momentum(step: Value) -> Value:
        power = clock.power(0.96, clock.op("mul", step, options.momentum_decay))
        return clock.op("mul", clock.op("sub", 1.0, clock.op("mul", power, 0.5)), options.beta1)

    now, coming = momentum(clock.step), momentum(clock.op("add", clock.step, 1.0))
    old, rate = clock.shared(MU_PRODUCT, 1.0), clock.wide_rate()
    product = clock.assign(old, clock.op("mul", old, now))
    of_gradient = clock.op("div", clock.op("mul", rate, clock.op("sub", 1.0, now)), clock.op("sub", 1.0, product))
    left = clock.op("sub", 1.0, clock.op("mul", product, coming))
    of_mean = clock.op("div", clock.op("mul", rate, coming), left)
    second = clock.op("rsqrt", clock.op("sub", 1.0, clock.power(options.second_decay)))
    return clock.f32(of_gradient, of_mean, second)


def _nadam(site: Site) -> None:
    base, g = _decayed(site)
    first, second = _moments(site, g)
    deviation = site.op("add", site.by(site.op("sqrt", second), site.scalars[2]), site.options.added)
    step = site.op("add", site.by(g, site.scalars[0]), site.by(first, site.scalars[1]))
    site.assign(site.weight, site.op("sub", base, site.op("div", step, deviation)))


def _radam_scalars(clock: Clock, options: Optimizer) -> Sequence[Value]:
    """rate / (1 - beta1^t), by which the mean is multiplied alone while the variance of the rate is unknown; and whether it is
    known, with what the root of the second moment then divides."""
    beta = options.second_decay
    first, second = (clock.op("sub", 1.0, clock.power(each)) for each in (options.beta1, beta))
    most = 2 / (1 - beta) - 1
    share = most / ((most - 4) * (most - 2)) if most > 5 else 0.0
    # Up to 5, which no length then exceeds, that is of another sign or infinite.
    assert clock.step is not None
    lost = clock.op("div", clock.op("mul", clock.op("mul", clock.step, 2.0), clock.power(beta)), second)
    length = clock.op("sub", most, lost)
    known = clock.b.op("greater", [length, clock.f64(5.0)])
    length = clock.op("max", length, 5.0)
    square_of = clock.op("mul", clock.op("sub", length, 4.0), clock.op("sub", length, 2.0))
    square_of = clock.op("div", clock.op("mul", square_of, share), length)
    rectified = clock.op("sqrt", clock.op("mul", square_of, second))
    return [*clock.f32(clock.op("div", clock.wide_rate(), first), rectified), known]


def _radam(site: Site) -> None:
    base, g = _decayed(site)
    first, second = _moments(site, g)
    rate, rectified, known = site.scalars
    deviation = site.op("add", site.op("sqrt", second), site.options.added)
    plain = site.by(first, rate)
    adapted = site.op("div", site.by(plain, rectified), deviation)
    site.assign(site.weight, site.op("sub", base, site.op("select", known, adapted, plain)))


def _decayed(site: Site) -> tuple[Value, Value]:
    """The weight that the update begins with, and the gradient."""
    if site.options.decoupled:
        return site.decayed_weight(), site.gradient
    return site.weight, site.decayed_gradient()


ADAM = UpdateRule(_adam_states, _adam, adam_scalars, counts=True)
ADAMW = UpdateRule(_adam_states, _adamw, adam_scalars, counts=True)
ADAMAX = UpdateRule(zeros_like("exp_avg", "exp_inf"), _adamax, _adamax_scalars, counts=True)
NADAM = UpdateRule(zeros_like("exp_avg", "exp_avg_sq"), _nadam, _nadam_scalars, counts=True)
RADAM = UpdateRule(zeros_like("exp_avg", "exp_avg_sq"), _radam, _radam_scalars, counts=True)

# SPDX-License-Identifier: Apache-2.0
"""SGD with momentum (Sutskever et al. 2013), and Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms")."""

from __future__ import annotations

from memc.ir.types import TensorType
from memc.passes.training.optimizers import Optimizer

from .rule import First, Site, UpdateRule, zeros_like


def _sgd_states(options: Optimizer, type: TensorType) -> First:
    return {"momentum": (type, 0.0)} if options.momentum else {}


def _sgd(site: Site) -> None:
    g, keep = site.decayed_gradient(), site.options.momentum
    if keep:
        old = site.states["momentum"]
        moved = site.assign(old, site.op("add", site.by(old, keep), g))
        g = site.op("add", g, site.by(moved, keep)) if site.options.nesterov else moved
    site.assign(site.weight, site.op("sub", site.weight, site.by(g, site.rate)))


def _lion(site: Site) -> None:
    """The weight moves by the rate against the sign of a mean, whose state forgets more slowly."""
    o, g = site.options, site.gradient
    base = site.decayed_weight()
    old = site.states["exp_avg"]
    direction = site.op("sign", site.op("add", site.by(old, o.beta1), site.by(g, 1 - o.beta1)))
    site.assign(site.weight, site.op("sub", base, site.by(direction, site.rate)))
    site.mean("exp_avg", g, o.second_decay)


SGD = UpdateRule(_sgd_states, _sgd)
LION = UpdateRule(zeros_like("exp_avg"), _lion)

# SPDX-License-Identifier: Apache-2.0
"""The activation functions that recurrent nodes name, with the parameters that these take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memc.ir.core import Value

from ..context import NodeContext

Activation = Callable[[Value], Value]

_DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
"""Default alpha and beta of the activations that take them."""


def activations(ctx: NodeContext, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The node's activation functions, per direction. alpha and beta are used up by those that take them."""
    names = [str(n).lower() for n in ctx.attr("activations", ())] or list(defaults) * directions
    if len(names) != len(defaults) * directions:
        raise ctx.unsupported(f"expected {len(defaults) * directions} activations, got {names}")
    alphas, betas = (list(ctx.attr(n, ())) for n in ("activation_alpha", "activation_beta"))
    found: list[Activation] = []
    for name in names:
        alpha, beta = _DEFAULTS.get(name, (None, None))
        if alpha is not None and alphas:
            alpha = float(alphas.pop(0))
        if beta is not None and betas:
            beta = float(betas.pop(0))
        found.append(_activation(ctx, name, alpha, beta))
    return [found[i : i + len(defaults)] for i in range(0, len(found), len(defaults))]


def _activation(ctx: NodeContext, name: str, alpha: float | None, beta: float | None) -> Activation:
    b = ctx.b

    def number(value: float | None, x: Value) -> Value:
        return b.scalar(value or 0.0, x.type.dtype)

    rules: dict[str, Activation] = {
        "relu": lambda x: b.op("relu", [x]),
        "tanh": lambda x: b.op("tanh", [x]),
        "sigmoid": lambda x: b.op("sigmoid", [x]),
        "softplus": lambda x: b.op("softplus", [x]),
        "softsign": lambda x: b.op("div", [x, b.op("add", [b.op("abs", [x]), number(1.0, x)])]),
        "affine": lambda x: b.op("add", [b.op("mul", [x, number(alpha, x)]), number(beta, x)]),
        "leakyrelu": lambda x: b.op("leaky_relu", [x], alpha=float(alpha or 0.0)),
        "thresholdedrelu": lambda x: b.op("select", [b.op("greater_equal", [x, number(alpha, x)]), x, number(0.0, x)]),
        "scaledtanh": lambda x: b.op("mul", [b.op("tanh", [b.op("mul", [x, number(beta, x)])]), number(alpha, x)]),
        "hardsigmoid": lambda x: b.op("hard_sigmoid", [x], alpha=float(alpha or 0.0), beta=float(beta or 0.0)),
        "elu": lambda x: b.op("elu", [x], alpha=float(alpha or 0.0)),
    }
    if name not in rules:
        raise ctx.unsupported(f"activation {name}")
    return rules[name]

# SPDX-License-Identifier: Apache-2.0
"""Small functions on which `canonicalize` is tried, with their values held against those before."""

from __future__ import annotations

import numpy as np

from memc.ir.core import Role
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager

CONV = "{strides = [1,1], pads = [1,1,1,1], dilations = [1,1], group = 1}"


def names(module: Module) -> list[str]:
    return [op.name for op in module.main.ops]


def computing(module: Module) -> list[str]:
    return [name for name in names(module) if name != "constant"]


def checked(text: str, weights: dict[str, np.ndarray] | None = None, passes: str = "canonicalize") -> Module:
    plain, module = parse(text), parse(text)
    plain.weights, module.weights = dict(weights or {}), dict(weights or {})
    PassManager.parse(passes).run(module)
    numbers = np.random.default_rng(1)
    inputs = {
        p.name: numbers.uniform(-2, 2, p.type.shape).astype(p.type.dtype.numpy)
        for p in plain.main.params_of(Role.INPUT)
    }
    expected, found = evaluate(plain, inputs), evaluate(module, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-5)
    return module


def function(body: str, result: str, params: str = "%x: f32[4,8] {role = input}", returned: str = "%y") -> str:
    return f"func @main({params}) -> {result} {{\n{body}\n  return {returned}\n}}\n"

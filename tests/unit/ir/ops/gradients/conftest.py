# SPDX-License-Identifier: Apache-2.0
"""Gradients held against finite differences in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Role, Value
from memc.ir.evaluate import evaluate
from memc.ir.module import Module
from memc.ir.types import DType, TensorType
from memc.ir.verify.structure import verify
from memc.passes.training.backward_pass import append_gradients

Build = Callable[[IRBuilder, Sequence[Value]], Value | Sequence[Value]]


def function_of(build: Build, inputs: Sequence[np.ndarray]) -> tuple[Module, Value, list[Value]]:
    """A function of `inputs` with its loss, a weighted sum of all elements that `build` makes, and the float inputs."""
    function = Function([])
    module = Module([function])
    for number, array in enumerate(inputs):
        kind = TensorType(DType.from_numpy(array.dtype), array.shape)
        function.params.append(Value(f"x{number}", kind, role=Role.INPUT))
    given = list(function.params)
    b = IRBuilder(module, function, function.ops)
    made = build(b, given)
    rng = np.random.default_rng(7)
    terms = []
    for value in [made] if isinstance(made, Value) else made:
        factors = b.constant(rng.uniform(0.5, 1.5, value.type.shape).astype(value.type.dtype.numpy))
        product = b.op("reshape", [b.op("mul", [value, factors])], shape=(value.type.elements,))
        terms.append(b.op("reduce_sum", [product], axes=(0,), keepdims=False))
    loss = terms[0]
    for term in terms[1:]:
        loss = b.op("add", [loss, term])
    function.returns = [loss]
    return module, loss, [v for v in given if v.type.dtype.is_float]


def finite_differences(module: Module, feeds: dict[str, np.ndarray], of: Value, step: float = 1e-5) -> np.ndarray:
    """Central differences of the first result in every element of one input."""
    found = np.zeros(of.type.shape)
    for index in np.ndindex(*of.type.shape):
        sides = []
        for sign in (1, -1):
            moved = feeds[of.name].copy()
            moved[index] += sign * step
            sides.append(next(iter(evaluate(module, {**feeds, of.name: moved}).values())).item())
        found[index] = (sides[0] - sides[1]) / (2 * step)
    return found


@pytest.fixture
def check_gradient() -> Callable[..., Module]:
    """Holds the gradients of what `build` makes of f64 (and integer) `inputs` against finite differences, to `rtol` of
    the largest one. Returns the module with loss and gradients."""

    def check(build: Build, inputs: Sequence[np.ndarray], rtol: float = 1e-6) -> Module:
        module, loss, wrt = function_of(build, inputs)
        feeds = {f"x{n}": array for n, array in enumerate(inputs)}
        expected = [finite_differences(module, feeds, value) for value in wrt]
        gradients = append_gradients(module, module.main, loss, wrt)
        module.main.returns = [loss, *gradients.values()]
        verify(module)
        results = list(evaluate(module, feeds).values())[1:]
        found = dict(zip(gradients, results))
        for value, numbers in zip(wrt, expected):
            if value not in found:
                assert np.abs(numbers).max(initial=0) < 1e-9, f"no gradient in {value}, expected {numbers}"
                continue
            scale = max(np.abs(numbers).max(initial=0), 1e-3)
            np.testing.assert_allclose(found[value], numbers, rtol=0, atol=rtol * scale, err_msg=value.name)
        return module

    return check


@pytest.fixture
def check_op_gradient(check_gradient: Any) -> Callable[..., Module]:
    """The same for one op with `attrs`; all its float results count."""

    def check(name: str, inputs: Sequence[np.ndarray], rtol: float = 1e-6, **attrs: Any) -> Module:
        def build(b: IRBuilder, given: Sequence[Value]) -> Sequence[Value]:
            return [v for v in b.multi(name, given, **attrs).results if v.type.dtype.is_float]

        return check_gradient(build, inputs, rtol)

    return check

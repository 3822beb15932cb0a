# SPDX-License-Identifier: Apache-2.0
"""recognize: formulas become others that compute the same, whose gradient keeps fewer values.

    x * sigmoid(x)                                           silu(x)
    x / 2 * (1 + erf(x / sqrt(2)))                           gelu(x)
    x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))    gelu(x) {approximate = tanh}
    a transpose of a matrix, times another                   matmul {transpose_a}, likewise b
    max_pool(relu(x))                                        relu(max_pool(x)), likewise concat: see delay_relu.py

Exporters write activations out, with factors in any sequence: then a value for each step would be kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memc.ir.core import Attr, Function, Op, Role, Value, fresh_names
from memc.ir.module import Module
from memc.ir.snapshot import is_raw
from memc.passes.base import Pass
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.rewrite.delay_relu import relu_later

DEPTH = 4
"""Products within products that are looked into."""

TOLERANCE = {2: 1e-3, 4: 1e-6, 8: 1e-6}
"""The relative tolerance of a formula's constants, by bytes of their type: exporters write them as f32."""


def recognize(module: Module, function: Function) -> None:
    """Put the ops in place of the formulas, and drop what only those read."""
    for number, op in enumerate(function.ops):
        found = _matched(module, op)
        if found is not None:
            function.ops[number] = found
    relu_later(function, fresh_names(v.name for v in function.values()))
    remove_dead(module, function)


def _matched(module: Module, op: Op) -> Op | None:
    """What computes the same as `op`, with the same result; None if there is nothing better."""
    if op.name == "matmul":
        return _transposed(op)
    if op.name != "mul":
        return None
    formula = _Formula(module)
    x = formula.silu(op)
    if x is not None:
        return _activation("silu", x, op)
    for approximate, function in (("none", "erf"), ("tanh", "tanh")):
        x = formula.gelu(op, function)
        if x is not None:
            return _activation("gelu", x, op, approximate)
    return None


def _activation(name: str, x: Value, op: Op, approximate: str | None = None) -> Op | None:
    if x.type != op.result.type or not x.type.dtype.is_float:
        return None
    attrs = dict(op.attrs) if approximate is None else {**op.attrs, "approximate": approximate}
    return Op(name, [x], op.results, attrs, op.plan, location=op.location)


def _transposed(op: Op) -> Op | None:
    """A product of matrices read across instead of their transposes."""
    operands, attrs = list(op.operands), dict(op.attrs)
    for side, value in enumerate(op.operands):
        inner = value.op
        if inner is None or inner.name != "transpose" or not exchanges_matrix(inner):
            continue
        key = ("transpose_a", "transpose_b")[side]
        operands[side], attrs[key] = inner.operands[0], not attrs.get(key, False)
    if operands == op.operands:
        return None
    return Op(op.name, operands, op.results, attrs, op.plan, location=op.location)


def exchanges_matrix(transpose: Op) -> bool:
    """Whether a transpose exchanges the last two axes and leaves the others."""
    rank = transpose.result.type.rank
    return rank >= 2 and transpose.attrs["perm"] == (*range(rank - 2), rank - 1, rank - 2)


@dataclass(frozen=True)
class _Product:
    """A number times values."""

    number: float
    values: Sequence[Value]


class _Formula:
    """Patterns over the constants of a module. Each method gives the value that the formula is of, or None."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def silu(self, op: Op) -> Value | None:
        for x, gate in (op.operands, op.operands[::-1]):
            if gate.op is not None and gate.op.name == "sigmoid" and gate.op.operands[0] is x:
                return x
        return None

    def gelu(self, op: Op, function: str) -> Value | None:
        for gate in self.product(op.result).values:
            bent = self._beside(gate, "add", 1.0)
            if bent is None or bent.op is None or bent.op.name != function:
                continue
            inner = bent.op.operands[0]
            x = self._erf_argument(inner) if function == "erf" else self._tanh_argument(inner)
            if x is not None and self._is(op.result, 0.5, [x, gate], stops=(x,)):
                return x
        return None

    def _erf_argument(self, value: Value) -> Value | None:
        """x of x / sqrt(2)."""
        for x in value.op.operands if value.op is not None else ():
            if self._is(value, math.sqrt(0.5), [x], stops=(x,)):
                return x
        return None

    def _tanh_argument(self, value: Value) -> Value | None:
        """x of sqrt(2 / pi) * (x + 0.044715 x^3)."""
        found = self.product(value)
        if len(found.values) != 1 or not self._equal(found.number, math.sqrt(2 / math.pi), value):
            return None
        sum = found.values[0].op
        if sum is None or sum.name != "add":
            return None
        for x, cubic in (sum.operands, sum.operands[::-1]):
            if self._is(cubic, 0.044715, [x, x, x], stops=(x,)):
                return x
        return None

    def _beside(self, value: Value, name: str, number: float) -> Value | None:
        """The other operand of an op `name` of which one operand is `number`."""
        if value.op is None or value.op.name != name:
            return None
        for a, b in (value.op.operands, value.op.operands[::-1]):
            known = constant_number(self.module, a)
            if known is not None and self._equal(known, number, value):
                return b
        return None

    def _is(self, value: Value, number: float, values: Sequence[Value], stops: Sequence[Value]) -> bool:
        """Whether `value` is the product of the number and the values."""
        found = self.product(value, stops)
        return sorted(map(id, found.values)) == sorted(map(id, values)) and self._equal(found.number, number, value)

    def _equal(self, a: float, b: float, of: Value) -> bool:
        return math.isclose(a, b, rel_tol=TOLERANCE.get(of.type.dtype.itemsize, 0.0))

    def product(self, value: Value, stops: Sequence[Value] = (), depth: int = DEPTH) -> _Product:
        """The factors of a value: of products, of quotients by numbers, and of squares and cubes; none of `stops` is taken
        apart."""
        known = constant_number(self.module, value)
        if known is not None:
            return _Product(known, ())
        op = value.op
        if op is None or value in stops or depth == 0 or op.name not in ("mul", "div", "pow"):
            return _Product(1.0, (value,))
        if op.name == "mul":
            a, b = (self.product(v, stops, depth - 1) for v in op.operands)
            return _Product(a.number * b.number, (*a.values, *b.values))
        number = constant_number(self.module, op.operands[1])
        a = self.product(op.operands[0], stops, depth - 1)
        if op.name == "div" and number:
            return _Product(a.number / number, a.values)
        if op.name == "pow" and number in (2.0, 3.0):
            return _Product(float(a.number**number), (*a.values,) * int(number))
        return _Product(1.0, (value,))


def constant_number(module: Module, value: Value) -> float | None:
    """What a constant of one element holds; None for other values."""
    if value.type.elements != 1:
        return None
    data: Attr | None = None
    if value.op is not None and value.op.name == "constant":
        data = value.op.attrs["value"]
    elif value.role is Role.WEIGHT:
        data = module.weights.get(value.name)
    return float(data.reshape(())) if isinstance(data, np.ndarray) else None


@dataclass(frozen=True)
class Recognize(Pass):
    """Formulas become others whose gradients keep fewer values; before build-gradient."""

    name: ClassVar[str] = "recognize"

    def apply(self, module: Module) -> None:
        for function in module.functions:
            if is_raw(function):
                recognize(module, function)

# SPDX-License-Identifier: Apache-2.0
"""Structural comparison of IR: what a round trip through text must keep."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core import Block, Function, Op, Value
from ..module import Module
from ..types import DType


def difference(left: Module, right: Module) -> str | None:
    """The first difference between two modules, in words, or None. Weights' data is not compared."""
    if left.target != right.target:
        return f"target {left.target} against {right.target}"
    if len(left.functions) != len(right.functions):
        return f"{len(left.functions)} functions against {len(right.functions)}"
    for a, b in zip(left.functions, right.functions):
        found = _functions(a, b)
        if found is not None:
            return f"@{a.name}: {found}"
    return None


def same_attr(a: Any, b: Any) -> bool:
    """Whether two attributes are equal in type and value; NaN equals NaN, 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_attr(x, y) for x, y in zip(a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and _same_bits(a, b)
    return bool(a == b)


def _same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if not DType.from_numpy(a.dtype).is_float:
        return bool(np.array_equal(a, b))
    with np.errstate(invalid="ignore"):
        nan_a, nan_b = np.isnan(a), np.isnan(b)
    return bool(np.array_equal(nan_a, nan_b)) and a[~nan_a].tobytes() == b[~nan_b].tobytes()


def _functions(a: Function, b: Function) -> str | None:
    if a.name != b.name:
        return f"name {a.name} against {b.name}"
    if a.result_names != b.result_names:
        return f"result names {a.result_names} against {b.result_names}"
    return _blocks(a, b)


def _blocks(a: Block, b: Block) -> str | None:
    if len(a.ops) != len(b.ops):
        return f"{len(a.ops)} ops against {len(b.ops)}"
    pairs = [(a.params, b.params, "parameters")]
    for number, (x, y) in enumerate(zip(a.ops, b.ops)):
        found = _ops(x, y)
        if found is not None:
            return f"op {number}: {found}"
        pairs.append((x.results, y.results, f"results of op {number}"))
        pairs.append(
            ([x.workspace] if x.workspace else [], [y.workspace] if y.workspace else [], f"workspace {number}")
        )
    mapping: dict[Value, Value] = {}
    for left, right, what in pairs:
        if len(left) != len(right):
            return f"{len(left)} {what} against {len(right)}"
        mapping.update(zip(left, right))
    for left_value, right_value in mapping.items():
        found = _values(left_value, right_value, mapping)
        if found is not None:
            return f"%{left_value.name}: {found}"
    for number, (x, y) in enumerate(zip(a.ops, b.ops)):
        if [mapping.get(v) for v in x.operands] != y.operands:
            return f"op {number}: operands {x.operands} against {y.operands}"
    if [mapping.get(v) for v in a.returns] != b.returns:
        return f"returns {a.returns} against {b.returns}"
    return None


def _ops(a: Op, b: Op) -> str | None:
    if a.name != b.name:
        return f"{a.name} against {b.name}"
    if list(a.attrs) != list(b.attrs):
        return f"attributes {list(a.attrs)} against {list(b.attrs)}"
    for key in a.attrs:
        if not same_attr(a.attrs[key], b.attrs[key]):
            return f"attribute {key} {a.attrs[key]!r} against {b.attrs[key]!r}"
    if a.plan != b.plan:
        return f"plan {a.plan} against {b.plan}"
    if a.location != b.location:
        return f"location {a.location!r} against {b.location!r}"
    if a.region is None or b.region is None:
        return None if a.region is b.region else "a region on one side only"
    return _blocks(a.region, b.region)


def _values(a: Value, b: Value, mapping: dict[Value, Value]) -> str | None:
    if (a.name, a.type, a.role, a.placement) != (b.name, b.type, b.role, b.placement):
        return f"{a!r} {a.role} {a.placement} against {b!r} {b.role} {b.placement}"
    if a.alias is None or b.alias is None:
        return None if a.alias is b.alias else "an alias on one side only"
    if mapping.get(a.alias.root) is not b.alias.root or a.alias.offset != b.alias.offset:
        return f"alias %{a.alias.root.name}[{a.alias.offset}] against %{b.alias.root.name}[{b.alias.offset}]"
    return None

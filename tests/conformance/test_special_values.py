# SPDX-License-Identifier: Apache-2.0
"""NaN, infinities and elements picked by data, where a kernel computes what an earlier op would have stored; odd names."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import memc

SPECIAL = np.array([np.inf, -np.inf, np.nan, 1e30, -2.5, 0.0], np.float32)


def run(body: str, x: np.ndarray, level: int, **initializers: np.ndarray) -> np.ndarray:
    """Output y of a compiled graph written as ONNX text."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {body}')
    for name, array in initializers.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return memc.compile(proto, opt_level=level).load().run_numpy({"x": x})["y"]


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Sub(t, t)", [np.nan, np.nan, np.nan, 0, 0, 0]),
        ("Mul(t, zero)", [np.nan, np.nan, np.nan, 0, 0, 0]),
        ("Mul(zero, t)", [np.nan, np.nan, np.nan, 0, 0, 0]),
        ("Div(zero, t)", [0, 0, np.nan, 0, 0, np.nan]),
    ],
)
def test_what_is_zero_for_finite_numbers_only(op: str, expected: list[float], level: int) -> None:
    body = f"(float[6] x) => (float[6] y) {{ t = Abs(x) y = {op} }}"
    np.testing.assert_array_equal(run(body, SPECIAL, level, zero=np.float32(0).reshape(())), expected)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("negated", [False, True])
def test_nan_differs_from_itself(negated: bool, level: int) -> None:
    last = "e = Equal(t, t) y = Not(e)" if negated else "y = Equal(t, t)"
    found = run(f"(float[6] x) => (bool[6] y) {{ t = Abs(x) {last} }}", SPECIAL, level)
    np.testing.assert_array_equal(found, np.isnan(SPECIAL) == negated)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", ["Abs(x)", "Transpose(x)"])
def test_picking_from_a_computed_value(op: str, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    index = np.array([1, 0, -1, 2] * 5)  # more than a constant written into the kernel has
    body = f"(float[4,4] x) => (float[n,m] y) {{ t = {op} p = Gather<axis: int = {axis}>(t, i) y = Add(p, p) }}"
    source = np.abs(x) if op == "Abs(x)" else x.T
    np.testing.assert_array_equal(run(body, x, 2, i=index), 2 * source.take(index, axis))


def test_an_input_called_self() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] self) => (float[2] y) { y = Neg(self) }'
    )
    found = memc.compile(proto).load().run_numpy({"self": np.float32([1, 2])})
    np.testing.assert_array_equal(found["y"], [-1, -2])

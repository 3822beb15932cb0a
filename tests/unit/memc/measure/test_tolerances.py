# SPDX-License-Identifier: Apache-2.0
"""Tolerances by the types in which a model computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from memc.frontend.onnx import import_onnx
from memc.ir.module import Module
from memc.measure.compare import compare
from memc.measure.tolerances import tolerances_of


def module(inputs: str, body: str) -> Module:
    return import_onnx(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> g ({inputs}) => (float[4] y) {{ {body} }}')
    )


HALF = "h = Cast<to = 10>(x) k = Relu(h) y = Cast<to = 1>(k)"
EIGHT = "s = Constant<value = float {0.5}>() z = Constant<value = uint8 {3}>() q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
STORED = (
    "s = Constant<value = float {0.5}>() z = Constant<value = int8 {3}>() w = DequantizeLinear(q, s, z) y = Add(x, w)"
)


@pytest.mark.parametrize(
    ("inputs", "body", "precision", "text"),
    [
        ("float[4] x", "y = Relu(x)", "f32", "f32: rtol 0.001, atol 1e-05"),
        ("float[4] x", "y = Relu(x)", "tf32", "tf32: rtol 0.02, atol 0.002"),
        ("float[4] x", "y = Relu(x)", "bf16", "bf16: relative error 0.05"),
        ("float[4] x", HALF, "f32", "f16: relative error 0.01"),
        ("float[4] x", HALF, "bf16", "bf16: relative error 0.05"),
        ("float[4] x", EIGHT, "f32", "8-bit: relative error 0.02"),
        ("float[4] x", EIGHT, "f16", "8-bit: relative error 0.02"),
        # Weights that are stored in 8 bits round nothing at run time.
        ("float[4] x, int8[4] q", STORED, "f32", "f32: rtol 0.001, atol 1e-05"),
    ],
)
def test_the_coarsest_type_decides(inputs: str, body: str, precision: str, text: str) -> None:
    assert str(tolerances_of(module(inputs, body), precision, None, None)) == text


def test_given_ones_win() -> None:
    found = tolerances_of(module("float[4] x", EIGHT), "f32", None, 0.25)
    assert str(found) == "given: rtol 0.001, atol 0.25" and found.norm is None and found.steps is None


def test_steps_of_eight_bits() -> None:
    a = np.full(100, 7, np.uint8)
    b = a.copy()
    b[:25] += 1
    limits = {"rtol": 0.0, "atol": 0.0}
    assert compare(a, b, **limits, steps=0.5).matches and not compare(a, b, **limits).matches
    b[25] += 1
    assert not compare(a, b, **limits, steps=0.5).matches
    # Other integers are no steps, and one that is far away is no rounding.
    assert not compare(a.astype(np.int32), a.astype(np.int32) + (np.arange(100) == 3), **limits, steps=0.5).matches
    b = a.copy()
    b[3] = 15
    assert not compare(a, b, **limits, steps=0.5).matches


def test_references_that_are_apart_allow_more() -> None:
    found = tolerances_of(module("float[4] x", EIGHT), "f32", None, None)
    a = np.ones(4, np.float32)
    assert found.widened(a, a * np.float32(1.009)) is None
    wider = found.widened(a, a * np.float32(1.03))
    assert wider is not None and wider.norm is not None and abs(wider.norm - 0.0583) < 1e-3
    wider = found.widened(a, a * np.float32(2))
    assert wider is not None and wider.norm == 0.1
    plain = tolerances_of(module("float[4] x", "y = Relu(x)"), "f32", None, None)
    assert plain.widened(a, a * np.float32(2)) is None

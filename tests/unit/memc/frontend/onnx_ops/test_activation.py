# SPDX-License-Identifier: Apache-2.0
"""Importing activation functions, against onnxruntime and the standard's formulas."""

import math

import numpy as np
import pytest

X = np.array([-30, -3, -1.5, -0.5, -0.1, 0, 0.1, 0.5, 1.5, 3, 30], np.float32)

CASES = [
    ("Relu", {}),
    ("Sigmoid", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {}),
    ("Elu", {"alpha": 2.0}),
    ("Selu", {}),
    ("Selu", {"alpha": 1.2, "gamma": 2.0}),
    ("Celu", {}),
    ("Celu", {"alpha": 0.7}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 0.4, "beta": 0.1}),
    ("HardSwish", {}),
    ("ThresholdedRelu", {}),
    ("ThresholdedRelu", {"alpha": 0.2}),
    ("Shrink", {}),
    ("Shrink", {"bias": 0.2, "lambd": 1.0}),
    ("Mish", {}),
]


@pytest.mark.parametrize("op, attrs", CASES, ids=[c[0] + "-".join(map(str, c[1].values())) for c in CASES])
@pytest.mark.parametrize("opset", [14, 18])
def test_against_onnxruntime(same_as_ort, op, attrs, opset):
    opset = 18 if op == "Mish" else opset
    same_as_ort(op, [X], opset=opset, **attrs)


@pytest.mark.parametrize("approximate", [None, "none", "tanh"])
def test_gelu(same_as_ort, approximate):
    same_as_ort("Gelu", [X], opset=20, **({} if approximate is None else {"approximate": approximate}))


@pytest.mark.parametrize("alpha", [None, 1.0, 1.7])
def test_swish(run_node, alpha):
    (found,) = run_node("Swish", [X], opset=24, **({} if alpha is None else {"alpha": alpha}))
    expected = [v / (1 + math.exp(-(alpha or 1.0) * v)) for v in X.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1,), (2, 1)])
def test_prelu_broadcasts_its_slope(same_as_ort, shape):
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 2, 3)
    slope = np.linspace(0.1, 0.9, math.prod(shape), dtype=np.float32).reshape(shape)
    same_as_ort("PRelu", [x, slope], opset=16)


def test_prelu_before_opset_7_has_a_slope_per_channel(run_node):
    x = np.full((2, 3, 4), -1, np.float32)
    (found,) = run_node("PRelu", [x, np.float32([1, 2, 3])], opset=6)
    assert found.tolist() == [[[-1.0] * 4, [-2.0] * 4, [-3.0] * 4]] * 2
    (found,) = run_node("PRelu", [x, np.float32([5])], opset=6)
    assert (found == -5).all()


def test_shrink_of_integers(same_as_ort):
    same_as_ort("Shrink", [np.array([-3, -1, 0, 1, 3], np.int32)], lambd=1.5, bias=1.0)

# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's products and convolutions with what follows them."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import InvalidError, UnsupportedError

RANDOM = np.random.default_rng(2)


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def moved(shape, trans, batch):
    """The shape that an operand whose product has `shape` must have before its axes are moved."""
    shape = list(shape)
    if trans:
        shape[-2:] = shape[:-3:-1]
    return (shape[-2], *shape[:-2], shape[-1]) if batch else tuple(shape)


@pytest.mark.parametrize("batch_a, batch_b", [*itertools.product((0, 1), repeat=2)])
@pytest.mark.parametrize("trans_a, trans_b", [*itertools.product((0, 1), repeat=2)])
@pytest.mark.parametrize("lead", [(2,), (3, 2)])
def test_fused_matmul(same, lead, trans_a, trans_b, batch_a, batch_b):
    a = data(*moved((*lead, 4, 5), trans_a, batch_a))
    b = data(*moved((*lead, 5, 3), trans_b, batch_b))
    attrs = {"transA": trans_a, "transB": trans_b, "transBatchA": batch_a, "transBatchB": batch_b}
    same("FusedMatMul", [a, b], alpha=0.25, rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize(
    "a, b", [((5,), (5,)), ((4, 5), (5,)), ((5,), (2, 5, 3)), ((4, 5), (5, 3)), ((2, 4, 5), (5, 3))]
)
def test_fused_matmul_of_vectors_and_matrices(same, a, b):
    same("FusedMatMul", [data(*a), data(*b)], rtol=1e-4, atol=1e-5)
    same("FusedMatMul", [data(*a).astype(np.float64), data(*b).astype(np.float64)], alpha=-3.0)
    same("TransposeMatMul", [data(*a), data(*b)], alpha=2.0, rtol=1e-4, atol=1e-5)


ACTIVATIONS = [
    ("Relu", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("LeakyRelu", {"activation_alpha": 0.2}),
    ("Elu", {"activation_alpha": 0.7}),
    ("Celu", {"activation_alpha": 0.7}),
    ("ThresholdedRelu", {"activation_alpha": 0.3}),
    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.2}),
]


@pytest.mark.parametrize("activation, params", ACTIVATIONS, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("trans", [0, 1])
def test_fused_gemm(same, activation, params, trans):
    a, b, c = data(*((5, 4) if trans else (4, 5))), data(*((3, 5) if trans else (5, 3))), data(3)
    attrs = {"transA": trans, "transB": trans, **params, "activation": activation}
    same("FusedGemm", [a, b, c], alpha=0.5, beta=2.0, rtol=1e-4, atol=1e-5, **attrs)
    same("FusedGemm", [a, b], rtol=1e-4, atol=1e-5, **attrs)


@pytest.mark.parametrize(
    "activation, params",
    [
        (None, None),
        ("Relu", None),
        ("Tanh", None),
        ("Sigmoid", None),
        ("LeakyRelu", [0.3]),
        ("Clip", [-0.5, 0.75]),
        ("HardSigmoid", [0.3, 0.4]),
    ],
)
@pytest.mark.parametrize("bias, residual", [*itertools.product((False, True), repeat=2)])
def test_fused_conv(same, activation, params, bias, residual):
    x, w = data(2, 4, 7, 6), data(6, 2, 3, 3)
    z = data(2, 6, 4, 4) if residual else None
    inputs = [x, w, data(6) if bias else None, z]
    while inputs[-1] is None:
        inputs.pop()
    attrs = {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 2], "kernel_shape": [3, 3]}
    attrs.update({} if activation is None else {"activation": activation})
    attrs.update({} if params is None else {"activation_params": params})
    same("FusedConv", inputs, rtol=1e-4, atol=1e-5, **attrs)


def test_refusals(run):
    with pytest.raises(UnsupportedError, match=r"node `node` \(FusedConv\): activation Gelu"):
        run("FusedConv", [data(1, 1, 3, 3), data(1, 1, 3, 3)], activation="Gelu")
    with pytest.raises(UnsupportedError, match=r"\(FusedGemm\): expected 1 parameters of activation Elu, got 0"):
        run("FusedGemm", [data(2, 2), data(2, 2)], activation="Elu")
    with pytest.raises(InvalidError, match=r"\(FusedGemm\): attribute `activation` is missing"):
        run("FusedGemm", [data(2, 2), data(2, 2)])
    with pytest.raises(
        UnsupportedError, match=r"\(FusedConv\): expected a Z of shape \[1, 1, 1, 1\], got f32\[1,1,1,2\]"
    ):
        run("FusedConv", [data(1, 1, 3, 3), data(1, 1, 3, 3), None, data(1, 1, 1, 2)])
    with pytest.raises(InvalidError, match=r"\(FusedMatMul\): expected 2 inputs, got 3"):
        run("FusedMatMul", [data(2, 2), data(2, 2), data(2)])

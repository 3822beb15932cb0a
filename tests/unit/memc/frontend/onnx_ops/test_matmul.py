# SPDX-License-Identifier: Apache-2.0
"""Importing matrix products, Einsum and their quantized forms, against onnxruntime and numpy."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(0)


def random(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "a, b", [((3,), (3,)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)), ((2, 1, 4, 3), (5, 3, 2)), ((0, 3), (3, 2))]
)
def test_matmul(same_as_ort, a, b):
    same_as_ort("MatMul", [random(*a), random(*b)], opset=13, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("addend", [None, (), (1,), (5,), (4, 1), (1, 5), (4, 5)])
@pytest.mark.parametrize("attrs", [{}, {"alpha": 0.5, "beta": 2.0}, {"transA": 1}, {"transB": 1, "beta": 0.0}])
def test_gemm(same_as_ort, attrs, addend):
    a = random(3, 4) if attrs.get("transA") else random(4, 3)
    b = random(5, 3) if attrs.get("transB") else random(3, 5)
    inputs = [a, b] + ([] if addend is None else [random(*addend)])
    same_as_ort("Gemm", inputs, opset=13, rtol=1e-4, atol=1e-5, **attrs)


def test_gemm_refuses_a_c_that_widens_the_result(run_node):
    with pytest.raises(UnsupportedError, match="broadcasts to"):
        run_node("Gemm", [random(1, 3), random(3, 5), random(4, 5)])


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("bii->ib", [(2, 4, 4)]),
        ("ij->", [(3, 4)]),
        ("ij->ji", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(3,), (3,)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("...ij->...j", [(2, 3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,jk,ik->i", [(2, 3), (3, 4), (2, 4)]),
        ("aij,bjk->bik", [(2, 3, 4), (5, 4, 2)]),
        ("ijk,ijk->ik", [(2, 3, 4), (2, 3, 4)]),
    ],
)
def test_einsum(run_node, equation, shapes):
    inputs = [random(*s) for s in shapes]
    (found,) = run_node("Einsum", inputs, opset=13, equation=equation)
    np.testing.assert_allclose(found, np.einsum(equation.replace(" ", ""), *inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk->ii", "ij->ijz", "ijk,jk->i", "ij"])
def test_einsum_that_does_not_fit(run_node, equation):
    with pytest.raises(UnsupportedError):
        run_node("Einsum", [random(3, 4), random(4, 5)], opset=13, equation=equation)


def test_matmul_integer(same_as_ort):
    a, b = (RANDOM.integers(0, 256, s).astype(np.uint8) for s in ((4, 5), (5, 3)))
    same_as_ort("MatMulInteger", [a, b, np.array(7, np.uint8), np.array(200, np.uint8)], opset=13)
    same_as_ort("MatMulInteger", [a, b], opset=13)


def test_conv_integer(same_as_ort):
    x, w = (RANDOM.integers(0, 256, s).astype(np.uint8) for s in ((1, 2, 5, 5), (3, 2, 3, 3)))
    same_as_ort("ConvInteger", [x, w, np.array(9, np.uint8)], opset=13, pads=[1, 1, 1, 1])


@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_conv(same_as_ort, per_channel):
    x = RANDOM.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8)
    # Weights of 7 bits: onnxruntime adds pairs of products in 16 bits, saturating, on processors without VNNI.
    w = RANDOM.integers(-64, 64, (3, 2, 3, 3)).astype(np.int8)
    w_scale = np.array([0.01, 0.02, 0.03], np.float32) if per_channel else np.array(0.02, np.float32)
    zeros = np.zeros(3, np.int8) if per_channel else np.array(0, np.int8)
    bias = RANDOM.integers(-1000, 1000, 3).astype(np.int32)
    scale, point = np.array(0.05, np.float32), np.array(120, np.uint8)
    inputs = [x, scale, point, w, w_scale, zeros, np.array(0.3, np.float32), np.array(100, np.uint8), bias]
    same_as_ort("QLinearConv", inputs, opset=13, known=(3, 4, 5), pads=[1, 0, 0, 1])


def test_qlinear_matmul_rounds_to_even_and_saturates(run_node):
    one, zero = np.array(1.0, np.float32), np.array(0, np.uint8)
    a = np.array([[1], [3], [5], [255]], np.uint8)
    b = np.array([[1]], np.uint8)
    inputs = [a, one, zero, b, one, zero, np.array(2.0, np.float32), np.array(200, np.uint8)]
    (found,) = run_node("QLinearMatMul", inputs, opset=13)
    assert found.dtype == np.uint8 and found.reshape(-1).tolist() == [200, 202, 202, 255]


def test_det(same_as_ort):
    same_as_ort("Det", [random(2, 3, 3)], opset=11, rtol=1e-4, atol=1e-5)

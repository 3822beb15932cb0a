# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's products of quantized matrices."""

import itertools

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(7)


def integers(of, *shape):
    info = np.iinfo(of)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(of)


def scales(*shape):
    return np.array(RANDOM.uniform(0.01, 0.1, shape), np.float32)


def data(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("of", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "by column"])
@pytest.mark.parametrize("trans_a, trans_b", [*itertools.product((0, 1), repeat=2)])
@pytest.mark.parametrize("known", [(), (1, 2, 3, 4, 5, 6, 7, 8)], ids=["given at run time", "known"])
def test_qgemm(same, of, each, trans_a, trans_b, known):
    m, k, n = 5, 17, 6
    a, b = integers(of[0], *((k, m) if trans_a else (m, k))), integers(of[1], *((n, k) if trans_b else (k, n)))
    count = (n,) if each else ()
    inputs = [a, scales(), integers(of[0]), b, scales(*count), integers(of[1], *count)]
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.75}
    for c in (None, (n,), (m, n), (m, 1), (1,)):
        bias = None if c is None else RANDOM.integers(-9999, 9999, c).astype(np.int32)
        full = [*inputs, bias, np.array(2.0, np.float32), integers(of[0])]
        few = tuple(i for i in known if full[i] is not None)
        same("QGemm", full, known=few, rounded=0.05, **attrs)
        plain = inputs if bias is None else [*inputs, bias]
        same("QGemm", plain, known=tuple(i for i in few if i < len(plain)), rtol=1e-5, **attrs)


@pytest.mark.parametrize("of", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize(
    "a, b", [((5, 17), (17, 6)), ((2, 5, 17), (17, 6)), ((3, 2, 5, 7), (3, 2, 7, 4)), ((1, 1), (1, 1))]
)
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "by column"])
def test_matmul_integer_to_float(same, of, a, b, each):
    count = (b[-1],) if each and len(b) == 2 else (*b[:-2], 1, b[-1]) if each else ()
    inputs = [integers(of[0], *a), integers(of[1], *b), scales(), scales(*count)]
    same("MatMulIntegerToFloat", inputs, rtol=1e-5)
    inputs += [integers(of[0]), integers(of[1], *count)]
    same("MatMulIntegerToFloat", inputs, rtol=1e-5, atol=1e-4)
    same("MatMulIntegerToFloat", [*inputs, data(b[-1])], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("of", [np.uint8, np.int8])
@pytest.mark.parametrize("a, b", [((5, 17), (17, 6)), ((2, 5, 17), (17, 6)), ((2, 5, 7), (2, 7, 4))])
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "by column"])
def test_dynamic_quantize_matmul(same, of, a, b, each):
    count = (b[-1],) if each and len(b) == 2 else (*b[:-2], 1, b[-1]) if each else ()
    for x in (data(*a), np.abs(data(*a)), -np.abs(data(*a)), np.zeros(a, np.float32)):
        inputs = [x, integers(of, *b), scales(*count)]
        same("DynamicQuantizeMatMul", inputs, rtol=1e-5, atol=1e-4)
        inputs.append(integers(of, *count))
        same("DynamicQuantizeMatMul", [*inputs, data(b[-1])], rtol=1e-5, atol=1e-4)


def test_refusals(run):
    a, b = integers(np.uint8, 2, 3), integers(np.int8, 3, 4)
    with pytest.raises(UnsupportedError, match=r"\(QGemm\): expected y_scale and y_zero_point, or neither"):
        run("QGemm", [a, scales(), integers(np.uint8), b, scales(), integers(np.int8), None, scales()])
    with pytest.raises(
        UnsupportedError, match=r"expected one element or 4, one for each column, as input 3, got f32\[3\]"
    ):
        run("MatMulIntegerToFloat", [a, b, scales(), scales(3)])
    with pytest.raises(UnsupportedError, match=r"expected u8 or i8 of rank 2 or more as input 1, got f32\[3,4\]"):
        run("DynamicQuantizeMatMul", [data(2, 3), data(3, 4), scales()])
    with pytest.raises(UnsupportedError, match=r"expected a zero point of type i8, got u8\[\]"):
        run("DynamicQuantizeMatMul", [data(2, 3), b, scales(), integers(np.uint8)])

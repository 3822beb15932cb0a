# SPDX-License-Identifier: Apache-2.0
"""Gradients in f16 and bf16: of the operands' types, and near those in f64."""

import ml_dtypes
import numpy as np
import pytest

from memc.ir.evaluate import evaluate
from memc.ir.types import DType
from memc.ir.verify.structure import verify
from memc.passes.training.backward_pass import append_gradients

from .conftest import function_of

RNG = np.random.default_rng(15)
CONV = {"strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (1, 1), "group": 1}
POOL = {"kernel": (2, 3), "strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (1, 1)}


def some(*shape):
    return RNG.uniform(-1, 1, shape)


X = some(2, 3, 4, 5)
CASES = {
    "conv": ([X, some(2, 3, 2, 2), some(2)], CONV),
    "conv_transpose": ([X, some(3, 2, 2, 2), some(2)], {**CONV, "output_padding": (0, 0)}),
    "max_pool": ([X], POOL),
    "sum_pool": ([X], POOL),
    "avg_pool": ([X], {**POOL, "extra": (0, 1), "count_include_pad": True}),
    "softmax": ([X], {"axis": 1}),
    "log_softmax": ([X], {"axis": 3}),
    "layer_norm": ([X, some(4, 5), some(5)], {"axis": 2, "epsilon": 1e-2}),
    "batch_norm_training": ([X, some(3), some(3)], {"epsilon": 1e-2}),
    "lrn": ([X], {"size": 3, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    "gather": ([X, np.array([[1, 1], [0, 2]])], {"axis": 2}),
    "gather_elements": ([X, RNG.integers(0, 4, (2, 3, 4, 5))], {"axis": 2}),
    "gather_nd": ([X, RNG.integers(0, 2, (4, 2))], {"batch_dims": 0}),
    "scatter_elements": ([X, RNG.integers(0, 4, (2, 3, 2, 5)), some(2, 3, 2, 5)], {"axis": 2, "reduction": "none"}),
    "scatter_nd": ([X, np.array([[1], [1]]), some(2, 3, 4, 5)], {"reduction": "add"}),
    "top_k": ([X], {"axis": 1, "k": 2, "largest": True}),
    "dropout": ([X, np.array(5)], {"ratio": 0.5, "stream": 0}),
    "softmax_cross_entropy": ([some(4, 6), np.array([0, 5, 2, 2])], {"ignore_index": 2, "label_smoothing": 0.1}),
    "col2im": (
        [some(2, 12, 6)],
        {"shape": (3, 5), "kernel": (2, 2), "strides": (1, 2), "dilations": (1, 1), "pads": (1, 0, 0, 0)},
    ),
}


def gradients(name, arrays, attrs):
    def build(b, given):
        results = [v for v in b.multi(name, given, **attrs).results if v.type.dtype.is_float]
        return [b.op("cast", [v], to=DType.F64) for v in results]

    module, loss, wrt = function_of(build, arrays)
    found = append_gradients(module, module.main, loss, wrt)
    module.main.returns = list(found.values())
    verify(module)
    return [np.asarray(v, np.float64) for v in evaluate(module, {f"x{i}": a for i, a in enumerate(arrays)}).values()]


@pytest.mark.parametrize("dtype, tolerance", [(np.float16, 1e-2), (ml_dtypes.bfloat16, 6e-2)], ids=["f16", "bf16"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_gradients(name, dtype, tolerance):
    inputs, attrs = CASES[name]
    narrow = [a.astype(dtype) if a.dtype.kind == "f" else a for a in inputs]
    wide = [a.astype(np.float64) if a.dtype == dtype else a for a in narrow]
    found, expected = gradients(name, narrow, attrs), gradients(name, wide, attrs)
    assert len(found) == len(expected) > 0
    for got, numbers in zip(found, expected):
        np.testing.assert_allclose(got, numbers, rtol=0, atol=tolerance * max(np.abs(numbers).max(), 1e-3))

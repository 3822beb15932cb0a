# SPDX-License-Identifier: Apache-2.0
"""Sums of as many f32 terms as training makes: their error against f64 does not grow with the number of terms.

A gradient of a weight adds over the batch and the image, 400,000 products in the first layers of a network at batch 32.
One after another in f32 they leave an error of 1e-4 or more if they have one sign, as data has after ReLU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.build import IRBuilder
from memc.ir.core import Array, Op, Value
from memc.ir.module import Module
from memc.ir.ops.shared.op_def import definition
from memc.ir.types import DType
from memc.runtime.codegen.debug import run_op

RNG = np.random.default_rng(0)
ERROR = 1e-6
"""Of the norm: some roundings of f32."""

WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
PRODUCT = {"transpose_a": False, "transpose_b": False}


def positive(*shape: int) -> Array:
    return RNG.uniform(0.1, 1, shape).astype(np.float32)


def below(extent: int, *shape: int) -> Array:
    return RNG.integers(0, extent, shape)


PRODUCTS: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "matmul": ("matmul", [positive(3, 200_000), positive(200_000, 4)], PRODUCT),
    "conv": ("conv", [positive(1, 8192, 5, 5), positive(4, 8192, 3, 3)], {**WINDOW, "group": 1}),
    "conv_transpose": (
        "conv_transpose",
        [positive(1, 8192, 5, 5), positive(8192, 4, 3, 3)],
        {**WINDOW, "group": 1, "output_padding": (0, 0)},
    ),
    "conv_grad_weight": (
        "conv_grad_weight",
        [positive(8, 2, 112, 112), positive(8, 3, 112, 112)],
        {**WINDOW, "group": 1, "kernel": (3, 3)},
    ),
    "conv_grad_weight, depthwise": (
        "conv_grad_weight",
        [positive(8, 2, 112, 112), positive(8, 2, 112, 112)],
        {**WINDOW, "group": 2, "kernel": (3, 3)},
    ),
}
"""Ops that have library kernels too."""

OTHERS: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "rows": ("reduce_sum", [positive(3, 200_000)], {"axes": (1,), "keepdims": False}),
    "columns": ("reduce_sum", [positive(200_000, 3)], {"axes": (0,), "keepdims": False}),
    "channels": ("reduce_mean", [positive(4, 3, 224, 224)], {"axes": (0, 2, 3), "keepdims": False}),
    "running sum": ("cumsum", [positive(20_000)], {"axis": 0, "exclusive": False, "reverse": False}),
    "embedding": ("gather_grad", [below(3, 50_000), positive(50_000, 4)], {"axis": 0, "extent": 3}),
    "softmax": ("softmax", [10 * positive(4, 30_000)], {"axis": 1}),
    "log_softmax": ("log_softmax", [10 * positive(4, 30_000)], {"axis": 1}),
    "cross entropy": (
        "softmax_cross_entropy",
        [10 * positive(4, 30_000), below(30_000, 4)],
        {"ignore_index": -1, "label_smoothing": 0.1},
    ),
    "layer_norm": ("layer_norm", [positive(2, 150_000) + 1], {"axis": 1, "epsilon": 1e-5}),
    "batch norm": (
        "batch_norm_training",
        [positive(4, 3, 112, 112) + 1, positive(3), positive(3)],
        {"epsilon": 1e-5},
    ),
}


def assert_accurate(op: Op, inputs: Sequence[Array], found: Sequence[Array]) -> None:
    """Relative to what the op's definition says in f64."""
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in inputs]
    types = [r.type.with_dtype(DType.F64) for r in op.results]
    for mine, exact in zip(found, definition(op).evaluate(wide, op.attrs, types), strict=True):
        assert np.linalg.norm(mine - exact) < ERROR * np.linalg.norm(exact)


@pytest.mark.parametrize("case", [*PRODUCTS, *OTHERS])
def test_generated_kernels(case: str, build_op: Callable[..., Op]) -> None:
    name, inputs, attrs = {**PRODUCTS, **OTHERS}[case]
    op = build_op(name, inputs, **attrs)
    assert_accurate(op, inputs, run_op(op, inputs))


@pytest.mark.parametrize("case", PRODUCTS)
def test_library_kernels(case: str, build_op: Callable[..., Op], make_module: Callable[..., Module]) -> None:
    name, inputs, attrs = PRODUCTS[case]

    def body(b: IRBuilder, params: Sequence[Value]) -> Sequence[Value]:
        return [b.op(name, params, **attrs)]

    module = make_module({f"x{n}": (DType.F32, a.shape) for n, a in enumerate(inputs)}, body)
    executable = memc.compile(module, kernels="library").load()
    assert executable.manifest.library_functions
    (found,) = executable(**{f"x{n}": a for n, a in enumerate(inputs)}).values()
    assert_accurate(build_op(name, inputs, **attrs), inputs, [found])

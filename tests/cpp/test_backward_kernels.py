# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels of gradients against the ops' numpy references in f64, called as the compiled program calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm_ffi

from memc import native
from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Value
from memc.ir.module import Module
from memc.ir.ops.library.cpu import CONV2D_GRAD_WEIGHT_CPU, CONV2D_TRANSPOSE_CPU
from memc.ir.ops.library.cpu_scatters import GATHER_GRAD_CPU
from memc.ir.ops.shared.op_def import LibraryKernel, definition
from memc.ir.types import DType, TensorType

Array = npt.NDArray[Any]
RNG = np.random.default_rng(14)


def make_op(name: str, arrays: list[Array], **attrs: Any) -> Op:
    operands = [Value(f"x{i}", TensorType(DType.from_numpy(a.dtype), a.shape)) for i, a in enumerate(arrays)]
    function = Function(list(operands))
    return IRBuilder(Module([function]), function, function.ops).multi(name, operands, **attrs)


def check(library: LibraryKernel, name: str, arrays: list[Array], workspace: int | None, **attrs: Any) -> None:
    op = make_op(name, arrays, **attrs)
    assert library.supports(op) and library in definition(op).library
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    exact = make_op(name, wide, **attrs)
    (expected,) = definition(exact).evaluate(wide, exact.attrs, [exact.result.type])
    native.load()
    result = np.full(op.result.type.shape, np.nan, np.float32)
    tensors = [*arrays, result]
    if workspace is not None:
        scratch = np.full(workspace + 64, 0xFF, np.uint8)  # NaN in f32.
        tensors.append(scratch[:workspace])
    tvm_ffi.get_global_func(library.symbol)(*(tvm_ffi.from_dlpack(t) for t in tensors), *library.scalars(op))
    if workspace is not None:
        assert (scratch[workspace:] == 0xFF).all()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * max(np.abs(expected).max(initial=0), 1))


def some(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


CONVOLUTIONS = [
    # x, w, strides, pads, dilations, group
    ((2, 3, 9), (4, 3, 3), (1,), (1, 1), (1,), 1),
    ((1, 4, 11), (6, 2, 4), (2,), (0, 3), (2,), 2),
    ((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((3, 3, 17, 18), (5, 3, 3, 2), (2, 1), (1, 0, 2, 1), (1, 2), 1),
    ((1, 2, 16, 16), (2, 2, 3, 3), (4, 3), (1, 1, 0, 0), (1, 1), 1),
    ((2, 4, 26, 26), (4, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((2, 4, 26, 26), (8, 1, 5, 5), (2, 2), (2, 2, 2, 2), (1, 1), 4),
    ((2, 6, 15, 15), (4, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 2),
    ((2, 6, 15, 15), (4, 3, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 2),
    # More than one panel, and more channels than threads.
    ((2, 40, 30, 30), (24, 40, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((9, 64, 4, 4), (32, 64, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
]


def gradient_shape(x: Any, w: Any, strides: Any, pads: Any, dilations: Any) -> tuple[int, ...]:
    rank = len(strides)
    out = [
        (x[2 + i] + pads[i] + pads[rank + i] - dilations[i] * (w[2 + i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    return (x[0], w[0], *out)


@pytest.mark.parametrize("workspace", [None, 300_000])
@pytest.mark.parametrize("x, w, strides, pads, dilations, group", CONVOLUTIONS)
def test_gradient_in_weights(x, w, strides, pads, dilations, group, workspace):
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "kernel": w[2:]}
    arrays = [some(*x), some(*gradient_shape(x, w, strides, pads, dilations))]
    check(CONV2D_GRAD_WEIGHT_CPU, "conv_grad_weight", arrays, workspace, **attrs)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("workspace", [None, 300_000])
@pytest.mark.parametrize("x, w, strides, pads, dilations, group", CONVOLUTIONS)
def test_transposed(x, w, strides, pads, dilations, group, workspace, bias):
    g = gradient_shape(x, w, strides, pads, dilations)
    rank = len(strides)
    extra = tuple(
        x[2 + i] + pads[i] + pads[rank + i] - strides[i] * (g[2 + i] - 1) - dilations[i] * (w[2 + i] - 1) - 1
        for i in range(rank)
    )
    arrays = [some(*g), some(*w)] + ([some(x[1])] if bias else [])
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "output_padding": extra}
    check(CONV2D_TRANSPOSE_CPU, "conv_transpose", arrays, workspace, **attrs)


def test_no_images():
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "group": 1}
    check(CONV2D_GRAD_WEIGHT_CPU, "conv_grad_weight", [some(0, 2, 5), some(0, 3, 4)], None, **attrs, kernel=(2,))


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("axis, lead, rest", [(0, (), (64,)), (1, (3,), (5, 2)), (0, (), ())])
def test_rows_by_index(index_type, axis, lead, rest):
    indices = RNG.integers(-300, 300, (20, 31)).astype(index_type)
    check(GATHER_GRAD_CPU, "gather_grad", [indices, some(*lead, 20, 31, *rest)], None, axis=axis, extent=300)

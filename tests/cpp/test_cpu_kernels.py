# SPDX-License-Identifier: Apache-2.0
"""The CPU library kernels against numpy in f64, called as the compiled program calls them."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm_ffi

from memc import native
from memc.ir.core import Op, Role, Value
from memc.ir.ops.library.cpu import (
    CONV2D_CPU,
    DEPTHWISE_CONV2D_CPU,
    MATMUL_CPU,
    PACKED_CONV2D_CPU,
    PACKED_MATMUL_CPU,
    STACK_PANEL,
)
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.types import DType, TensorType

Array = npt.NDArray[Any]
F32 = DType.F32


def make_op(name: str, shapes: Sequence[tuple[int, ...]], result: tuple[int, ...], **attrs: Any) -> Op:
    operands = [Value(f"v{i}", TensorType(F32, s), role=Role.INPUT) for i, s in enumerate(shapes)]
    return Op(name, operands, [Value("y", TensorType(F32, result))], attrs)


def call(kernel: LibraryKernel, op: Op, operands: Sequence[Array], workspace: int | None) -> Array:
    """Run the kernel on poisoned result and workspace bytes."""
    assert kernel.supports(op)
    native.load()
    result = np.full(op.result.type.shape, np.nan, np.float32)
    tensors = [*operands, result]
    guard = 64
    if workspace is not None:
        scratch = np.full(workspace + guard, 0xFF, np.uint8)  # NaN in f32.
        tensors.append(scratch[:workspace])
    function = tvm_ffi.get_global_func(kernel.symbol)
    function(*(tvm_ffi.from_dlpack(t) for t in tensors), *kernel.scalars(op))
    if workspace is not None:
        assert (scratch[workspace:] == 0xFF).all()
    return result


def reference_conv(
    x: Array,
    w: Array,
    bias: Array | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    g: int,
) -> Array:
    """By the definition, one tap at a time, in f64."""
    rank = len(strides)
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    kernel = w.shape[2:]
    out = [(x.shape[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per_in, per_out = w.shape[1], w.shape[0] // g
    for tap in itertools.product(*(range(k) for k in kernel)):
        cut = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilations, out, strides))
        part = x[(slice(None), slice(None), *cut)]
        weights = w[(slice(None), slice(None), *tap)].astype(np.float64)
        for group in range(g):
            rows = slice(group * per_out, (group + 1) * per_out)
            y[:, rows] += np.einsum("nc...,mc->nm...", part[:, group * per_in : (group + 1) * per_in], weights[rows])
    if bias is not None:
        y += bias.reshape(1, -1, *[1] * rank)
    return y


CONVS = [
    # x, out channels, kernel, strides, pads, dilations, group
    ((2, 3, 11, 13), 8, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 4, 9, 9), 6, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 4, 9, 9), 6, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 2),
    ((1, 4, 5, 7), 4, (1, 1), (1, 1), (1, 0, 0, 2), (1, 1), 1),
    ((3, 6, 10, 8), 9, (5, 2), (2, 1), (0, 1, 3, 2), (1, 2), 3),
    ((1, 2, 20, 20), 3, (3, 3), (3, 3), (2, 2, 2, 2), (2, 3), 1),
    ((1, 2, 4, 4), 2, (3, 3), (1, 1), (4, 4, 4, 4), (1, 1), 1),
    ((2, 5, 17), 7, (4,), (2,), (1, 2), (2,), 1),
    ((1, 64, 7, 7), 96, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 16, 40, 40), 24, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((0, 3, 8, 8), 4, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
]
DEPTHWISE = [
    ((2, 6, 11, 13), 6, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 6),
    ((1, 4, 14, 14), 8, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1), 4),
    ((1, 3, 30, 9), 3, (5, 3), (3, 2), (2, 0, 1, 3), (2, 3), 3),
    ((1, 2, 70, 70), 2, (7, 7), (1, 1), (3, 3, 3, 3), (1, 1), 2),
    ((1, 2, 40), 2, (9,), (4,), (3, 5), (2,), 2),
    ((1, 2, 3, 9000), 2, (3, 3), (1, 2), (1, 1, 1, 1), (1, 1), 2),
    ((1, 2, 40, 40), 2, (17, 17), (1, 1), (8, 8, 8, 8), (1, 1), 2),
    ((0, 2, 5, 5), 2, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2),
]


def check_conv(kernel: LibraryKernel, case: tuple[Any, ...], with_bias: bool, most: bool) -> None:
    x_shape, m, taps, strides, pads, dilations, group = case
    random = np.random.default_rng(math.prod(x_shape) + m)
    x = random.standard_normal(x_shape, np.float32)
    w = random.standard_normal((m, x_shape[1] // group, *taps), np.float32)
    bias = random.standard_normal(m, np.float32) if with_bias else None
    expected = reference_conv(x, w, bias, strides, pads, dilations, group)
    operands = [x, w] if bias is None else [x, w, bias]
    shapes = [v.shape for v in operands]
    op = make_op("conv", shapes, expected.shape, strides=strides, pads=pads, dilations=dilations, group=group)
    workspace = None
    if kernel.workspace is not None:
        least, useful = kernel.workspace(op)
        assert 0 <= least <= useful <= 2**20
        workspace = (useful if most else least) or None
    actual = call(kernel, op, operands, workspace)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", [False, True], ids=["least", "most"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("case", CONVS, ids=str)
def test_conv2d(case: tuple[Any, ...], with_bias: bool, most: bool) -> None:
    check_conv(CONV2D_CPU, case, with_bias, most)


@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise(case: tuple[Any, ...], with_bias: bool) -> None:
    check_conv(DEPTHWISE_CONV2D_CPU, case, with_bias, most=True)
    check_conv(CONV2D_CPU, case, with_bias, most=False)


@pytest.mark.parametrize("size", [1, 4 * STACK_PANEL - 4, 4 * STACK_PANEL, 4 * STACK_PANEL + 52, 2**19])
def test_conv2d_takes_any_workspace(size: int) -> None:
    random = np.random.default_rng(size)
    x = random.standard_normal((2, 16, 40, 40), np.float32)
    w = random.standard_normal((8, 16, 3, 3), np.float32)
    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    expected = reference_conv(x, w, None, *window.values())
    op = make_op("conv", [x.shape, w.shape], expected.shape, **window)
    np.testing.assert_allclose(call(CONV2D_CPU, op, [x, w], size), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [CONV2D_CPU, PACKED_CONV2D_CPU, DEPTHWISE_CONV2D_CPU], ids=lambda k: k.symbol)
def test_limits_and_nan(kernel: LibraryKernel) -> None:
    native.load()
    x = np.tile(np.array([1.0, -2.0, np.nan, 9.0], np.float32), (1, 1, 5, 1))
    w = np.ones((1, 1, 1, 1), np.float32)
    y = np.zeros_like(x)
    function = tvm_ffi.get_global_func(kernel.symbol)
    function(*(tvm_ffi.from_dlpack(t) for t in (x, w, y)), 2, 1, 1, 1, 0, 0, 1, 1, 0, 0.0, 6.0)
    np.testing.assert_array_equal(y, np.clip(x, 0, 6))


def run_packed(kernel: LibraryKernel, op: Op, operands: Sequence[Array], add: Array | None, over: bool) -> Array:
    """The kernel on the packed weight, with limits -1 and 3; `over`: the result takes over the addend's bytes."""
    native.load()
    assert kernel.packing is not None and kernel.supports(op)
    x, w, *rest = operands
    packed = kernel.packing(op).pack(w)
    assert packed.dtype == np.float32 and packed.size == w.size
    result = np.full(op.result.type.shape, np.nan, np.float32)
    if add is not None:
        rest = [*rest, add]
        if over:
            result = rest[-1] = add.copy()
    tensors = [x, packed.reshape(w.shape), *rest, result]
    scalars = [len(tensors) - 1, *kernel.scalars(op)[1:-2], -1.0, 3.0]
    tvm_ffi.get_global_func(kernel.symbol)(*(tvm_ffi.from_dlpack(t) for t in tensors), *scalars)
    return result


PACKED = [
    *CONVS,
    *DEPTHWISE,
    # Rows and pixels that fill no panel, several blocks of terms, strides, wide kernels, one pixel.
    ((1, 100, 7, 7), 70, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((2, 300, 14, 14), 67, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 3, 64, 64), 64, (7, 7), (2, 2), (3, 3, 3, 3), (1, 1), 1),
    ((1, 16, 30, 30), 16, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 2, 40, 40), 12, (17, 17), (1, 1), (8, 8, 8, 8), (1, 1), 1),
    ((2, 24, 9, 9), 28, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 2),
    ((1, 40, 3, 3), 13, (3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 5, 6, 17), 7, (2, 3), (3, 3), (1, 1, 1, 1), (1, 1), 1),
    ((1, 600, 3, 4), 20, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
]


@pytest.mark.parametrize("addend", ["none", "add", "over"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("case", PACKED, ids=str)
def test_packed_conv2d(case: tuple[Any, ...], with_bias: bool, addend: str) -> None:
    x_shape, m, taps, strides, pads, dilations, group = case
    random = np.random.default_rng(math.prod(x_shape) + m)
    x = random.standard_normal(x_shape, np.float32)
    w = random.standard_normal((m, x_shape[1] // group, *taps), np.float32)
    bias = random.standard_normal(m, np.float32) if with_bias else None
    expected = reference_conv(x, w, bias, strides, pads, dilations, group)
    add = None if addend == "none" else random.standard_normal(expected.shape, np.float32)
    operands = [x, w] if bias is None else [x, w, bias]
    window = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    op = make_op("conv", [v.shape for v in operands], expected.shape, **window)
    actual = run_packed(PACKED_CONV2D_CPU, op, operands, add, addend == "over")
    expected = np.clip(expected if add is None else expected + add, -1, 3)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


TASKS = """
#include <stdlib.h>
struct Group { void* sync; int tasks; };
int TVMBackendParallelLaunch(int (*run)(int, struct Group*, void*), void* data, int count) {
  struct Group group = {0, atoi(getenv("FAKE_TASKS"))};
  for (int i = 0; i < group.tasks; ++i) run(i, &group, data);
  return 0;
}
"""
"""TVM's launch of a parallel loop, as on a machine with as many cores as that says."""


@pytest.mark.parametrize("tasks", [3, 7])
def test_packed_conv2d_by_more_threads(tasks: int, tmp_path: Path) -> None:
    """Than there are panels of pixels, or than divide them."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "tasks.c").write_text(TASKS)
    library = tmp_path / "tasks.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "tasks.c")], check=True)
    chosen = "test_packed_conv2d and not threads"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, __file__]
    env = {**os.environ, "LD_PRELOAD": str(library), "FAKE_TASKS": str(tasks)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("addend", ["none", "add", "over"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("transposed", [False, True], ids=["k_n", "n_k"])
@pytest.mark.parametrize("shape", [(1, 33, 16), (5, 7, 48), (65, 300, 80), (128, 513, 96), (13, 1, 32)], ids=str)
def test_packed_matmul(shape: tuple[int, int, int], transposed: bool, with_bias: bool, addend: str) -> None:
    m, k, n = shape
    random = np.random.default_rng(m * k + n)
    a = random.standard_normal((m, k), np.float32)
    b = random.standard_normal((n, k) if transposed else (k, n), np.float32)
    bias = random.standard_normal(n, np.float32) if with_bias else None
    add = None if addend == "none" else random.standard_normal((m, n), np.float32)
    expected = a.astype(np.float64) @ (b.T if transposed else b).astype(np.float64)
    operands = [a, b] if bias is None else [a, b, bias]
    op = make_op("matmul", [v.shape for v in operands], (m, n), transpose_a=False, transpose_b=transposed)
    actual = run_packed(PACKED_MATMUL_CPU, op, operands, add, addend == "over")
    expected = expected + (0 if bias is None else bias) + (0 if add is None else add)
    np.testing.assert_allclose(actual, np.clip(expected, -1, 3), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("over", [False, True], ids=["add", "over"])
@pytest.mark.parametrize("name", ["conv", "matmul"])
def test_addend_of_the_usual_kernels(name: str, over: bool) -> None:
    native.load()
    random = np.random.default_rng(3)
    if name == "conv":
        x, w = random.standard_normal((2, 30, 12, 12), np.float32), random.standard_normal((20, 30, 3, 3), np.float32)
        expected = reference_conv(x, w, None, (1, 1), (1, 1, 1, 1), (1, 1), 1)
        op = make_op(
            "conv", [x.shape, w.shape], expected.shape, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), group=1
        )
        kernel = CONV2D_CPU
    else:
        x, w = random.standard_normal((3, 40, 50), np.float32), random.standard_normal((3, 50, 30), np.float32)
        expected = np.matmul(x.astype(np.float64), w.astype(np.float64))
        op = make_op("matmul", [x.shape, w.shape], expected.shape, transpose_a=False, transpose_b=False)
        kernel = MATMUL_CPU
    add = random.standard_normal(expected.shape, np.float32)
    expected = np.clip(expected + add, -2, 2)
    result = add if over else np.full(expected.shape, np.nan, np.float32)
    scalars = [3, *kernel.scalars(op)[1:-2], -2.0, 2.0]
    tvm_ffi.get_global_func(kernel.symbol)(*(tvm_ffi.from_dlpack(t) for t in (x, w, add, result)), *scalars)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


MATMULS = [
    # a, b as stored, transpose_a, transpose_b
    ((3, 4), (4, 5), False, False),
    ((4, 3), (5, 4), True, True),
    ((1, 33), (33, 70), False, False),
    ((1, 33), (70, 33), False, True),
    ((33, 1), (33, 70), True, False),
    ((65, 33), (33, 1), False, False),
    ((2, 3, 65, 33), (33, 70), False, False),
    ((2, 3, 33, 65), (33, 70), True, False),
    ((2, 1, 5, 6), (3, 6, 7), False, False),
    ((3, 5, 6), (2, 1, 7, 6), False, True),
    ((5, 6), (4, 6, 7), False, False),
    ((1, 5, 6), (4, 6, 7), False, False),
    ((100, 64), (64, 90), False, False),
    ((0, 7), (7, 3), False, False),
    ((4, 0), (0, 3), False, False),
    ((2, 3, 4), (0, 2, 4, 5), False, False),
    ((20, 8, 8), (20, 8, 8), False, True),
    ((3, 128, 64), (3, 128, 64), False, True),
    ((3, 40, 300), (3, 300, 37), False, False),
    ((2, 29, 513), (2, 70, 513), False, True),
]


@pytest.mark.parametrize("case", MATMULS, ids=str)
def test_matmul(case: tuple[Any, ...]) -> None:
    a_shape, b_shape, transpose_a, transpose_b = case
    random = np.random.default_rng(sum(a_shape) + sum(b_shape))
    a, b = random.standard_normal(a_shape, np.float32), random.standard_normal(b_shape, np.float32)
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    expected = np.matmul(left.astype(np.float64), right.astype(np.float64))
    op = make_op("matmul", [a_shape, b_shape], expected.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    np.testing.assert_allclose(call(MATMUL_CPU, op, [a, b], None), expected, rtol=1e-4, atol=1e-4)
    bias = random.standard_normal(expected.shape[-1], np.float32)
    op = make_op(
        "matmul", [a_shape, b_shape, bias.shape], expected.shape, transpose_a=transpose_a, transpose_b=transpose_b
    )
    np.testing.assert_allclose(call(MATMUL_CPU, op, [a, b, bias], None), expected + bias, rtol=1e-4, atol=1e-4)


def test_matmul_rejects_shapes_that_do_not_fit() -> None:
    op = make_op("matmul", [(3, 4), (5, 6)], (3, 6), transpose_a=False, transpose_b=False)
    with pytest.raises(ValueError, match="shapes do not fit"):
        call(MATMUL_CPU, op, [np.zeros((3, 4), np.float32), np.zeros((5, 6), np.float32)], None)


def test_only_f32_is_supported() -> None:
    op = make_op("matmul", [(3, 4), (4, 6)], (3, 6), transpose_a=False, transpose_b=False)
    op.operands[0].type = TensorType(DType.F64, (3, 4))
    assert not MATMUL_CPU.supports(op)
    with pytest.raises(ValueError, match="f32"):
        tvm_ffi.get_global_func("memc.cpu.matmul")(
            *(tvm_ffi.from_dlpack(np.zeros(s)) for s in ((3, 4), (4, 6), (3, 6))), 2, 0, 0, 0, 0.0, 0.0
        )

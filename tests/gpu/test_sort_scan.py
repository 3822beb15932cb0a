# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: sorts, running sums and products by memc's own kernels, against numpy, and compiled programs
against the CPU's. Skips itself elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sort_scan_cases import (
    DTYPES,
    GUARD,
    Array,
    boxes_of,
    expected_positions,
    expected_scan,
    make_op,
    random,
    random_factors,
)

import memc
from memc.ir.evaluate import evaluate
from memc.ir.ops.library import cuda_sort_scan
from memc.ir.ops.shared.op_def import LibraryKernel
from memc.ir.text.parser import parse
from memc.passes.pipelines import pipeline

pytestmark = pytest.mark.gpu

EXTENTS = [1, 2, 3, 31, 32, 33, 511, 512, 513, 1000, 4097]
LONG = [200_000, 1_000_003]


def run(library: LibraryKernel, name: str, x: Array, room: int = 0, **attrs: Any) -> list[Array]:
    """The kernel's results, with the least workspace (room 0) or the most, and nothing beyond them written."""
    import tvm
    import tvm_ffi

    op, device = make_op(name, x, **attrs), tvm.cuda(0)
    assert library.supports(op)
    bits = x.view(np.uint16) if x.dtype == ml_dtypes.bfloat16 else x
    given = tvm.runtime.tensor(np.ascontiguousarray(bits), device)
    bytes = 0 if library.workspace is None else library.workspace(op)[room]
    sizes = [r.type.nbytes for r in op.results] + [bytes]
    held = [tvm.runtime.tensor(np.full(size + GUARD, 0xA5, np.uint8), device) for size in sizes]
    types = ["uint16" if r.type.dtype.numpy == ml_dtypes.bfloat16 else str(r.type.dtype.numpy) for r in op.results]
    views = [t._create_view(r.type.shape, type) for t, r, type in zip(held, op.results, types)]
    tensors = [given, *views, *([held[-1]._create_view((bytes,))] if bytes else [])]
    tvm_ffi.get_global_func(library.symbol)(*map(tvm_ffi.from_dlpack, tensors), *library.scalars(op))
    raw = [t.numpy() for t in held]
    assert all((a[size:] == 0xA5).all() for a, size in zip(raw, sizes))
    return [a[:-GUARD].view(r.type.dtype.numpy).reshape(r.type.shape) for a, r in zip(raw, op.results)]


def check_top_k(x: Array, axis: int, k: int, largest: bool, room: int = 0, order: Array | None = None) -> None:
    values, positions = run(cuda_sort_scan.TOP_K_CUDA, "top_k", x, room, axis=axis, k=k, largest=largest)
    order = expected_positions(x, axis, largest) if order is None else order
    wanted = np.take(order, range(k), axis=axis)
    np.testing.assert_array_equal(positions, wanted)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    np.testing.assert_array_equal(values.view(bits), np.take_along_axis(x, wanted, axis).view(bits))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k(kernels: None, dtype: str, largest: bool) -> None:
    for extent in EXTENTS:
        for shape, axis in [((extent,), 0), ((7, extent), 1), ((2, extent, 5), 1)]:
            for k in sorted({1, extent // 3, extent}):
                if k:
                    check_top_k(random(dtype, shape, k % 2 == 0), axis, k, largest)


@pytest.mark.parametrize("extent", LONG)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "uint8", "int32", "int64"])
def test_long_lines(kernels: None, dtype: str, extent: int) -> None:
    for ties in (False, True):
        x = random(dtype, (extent,), ties)
        for largest in (False, True):
            order = expected_positions(x, 0, largest)
            for k in (1, 10, 600, extent // 10, extent):
                check_top_k(x, 0, k, largest, order=order)


def test_long_lines_apart(kernels: None) -> None:
    for dtype in ("float32", "int64"):
        x = random(dtype, (16, 20_000, 3), True)
        for k in (10, 900, 20_000):
            for room in (0, 1):
                check_top_k(x, 1, k, True, room)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_and_positions(kernels: None, dtype: str) -> None:
    for shape, axis in [((7, 1), 1), ((3, 257, 2), 1), ((5000,), 0), ((9, 2300, 2), 1), ((1_000_003,), 0)]:
        x = random(dtype, shape, True)
        (ranks,) = run(cuda_sort_scan.SORT_RANKS_CUDA, "sort_ranks", x, axis=axis, descending=False)
        positions = expected_positions(x, axis, False)
        np.testing.assert_array_equal(ranks, np.argsort(positions, axis))
        for count in (1, shape[axis]):
            (found,) = run(cuda_sort_scan.RANK_POSITIONS_CUDA, "rank_positions", ranks, axis=axis, count=count)
            np.testing.assert_array_equal(found, np.take(positions, range(count), axis))


def test_nothing_is_sorted(kernels: None) -> None:
    for shape, k in (((0,), 0), ((5, 0), 0), ((0, 5), 2), ((4, 3000), 0)):
        attrs = {"axis": len(shape) - 1, "k": k, "largest": True}
        values, positions = run(cuda_sort_scan.TOP_K_CUDA, "top_k", np.ones(shape, np.float32), **attrs)
        assert values.size == positions.size == 0


SCANS = {"cumsum": cuda_sort_scan.CUMSUM_CUDA, "cumprod": cuda_sort_scan.CUMPROD_CUDA}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("float16", "bfloat16")])
def test_scans(kernels: None, dtype: str, name: str, turned: bool) -> None:
    shapes = [((33,), 0), ((3, 511, 4), 1), ((700, 1000), 1), ((1000, 700), 0), ((200_000,), 0), ((1_000_003,), 0)]
    for shape, axis in shapes:
        x = random_factors(dtype, shape) if name == "cumprod" else random(dtype, shape, True, special=False)
        if name == "cumprod" and dtype.startswith("float"):
            x = np.sqrt(np.sqrt(np.abs(x))) * np.sign(x)  # Longer lines stay inside of the range.
        for exclusive in (False, True):
            attrs = {"axis": axis, "exclusive": exclusive, "reverse": turned}
            (found,) = run(SCANS[name], name, x, **attrs)
            wanted = expected_scan(name, x, **attrs)
            if dtype.startswith("float"):
                precision = 1e-6 if dtype == "float32" else 1e-10
                np.testing.assert_allclose(found, wanted, rtol=precision, atol=precision if name == "cumsum" else 0)
            else:
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_that_leave_the_range(kernels: None, dtype: str) -> None:
    great = 1e30 if dtype == "float32" else 1e300
    rng = np.random.default_rng(5)
    lines = [rng.uniform(0, 1, 300_000), rng.uniform(1, 9, 300_000)]
    for at in (5, 2047, 100_000, 299_000):
        for end in (0, np.inf, np.nan, -1):
            for factor in (great, 1 / great, 0, np.inf):
                x = np.ones(300_000)
                x[at : at + 3], x[299_990] = factor, end
                lines.append(x)
    for line in lines:
        x = line.astype(dtype)
        (found,) = run(cuda_sort_scan.CUMPROD_CUDA, "cumprod", x, axis=0, exclusive=False, reverse=False)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, np.cumprod(x, dtype=x.dtype), rtol=3e-5, atol=0)


PROGRAM = """
func @main(%x: f32[3,5000,2] {role = input}) -> (f32[3,5000,2], i64[3,5000,2], f32[3,10,2], i64[3,10,2], f32[3,5000,2], f32[3,5000,2]) {
  %a, %b = top_k(%x) {axis = 1, k = 5000, largest = true} : f32[3,5000,2], i64[3,5000,2]
  %c, %d = top_k(%x) {axis = 1, k = 10, largest = false} : f32[3,10,2], i64[3,10,2]
  %s = cumsum(%x) {axis = 1, exclusive = false, reverse = false} : f32[3,5000,2]
  %f = tanh(%x) : f32[3,5000,2]
  %p = cumprod(%f) {axis = 1, exclusive = true, reverse = true} : f32[3,5000,2]
  return %a, %b, %c, %d, %s, %p
}
"""


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_programs_give_what_the_cpu_gives(arch: str, tmp_path: Path, opt_level: int) -> None:
    """Sorts the same bits; sums and products as near as rounding allows."""
    x = random("float32", (3, 5000, 2), True)
    x[:, ::7] = np.where(np.isfinite(x[:, ::7]), x[:, ::7], 0)
    runs = []
    for target in ({"target": "llvm"}, {"target": "cuda", "arch": arch}):
        folder = tmp_path / target["target"]
        done = memc.compile(parse(PROGRAM, "test"), folder, opt_level=opt_level, **target)  # type: ignore[arg-type]
        loaded = done.load()
        runs.append(list(loaded.run_numpy({"x": x}).values()))
        again = list(loaded.run_numpy({"x": x}).values())
        assert all(a.tobytes() == b.tobytes() for a, b in zip(runs[-1], again))
    for host, device in zip(runs[0][:4], runs[1][:4]):
        assert host.tobytes() == device.tobytes()
    for host, device in zip(runs[0][4:], runs[1][4:]):
        np.testing.assert_allclose(device, host, rtol=1e-5, atol=1e-5)


BOXES = """
func @main(%b: f32[2,{n},4] {{role = input}}, %c: i64[2,{classes},{n}] {{role = input}}, %t: f32[] {{role = input}}) -> (i64[2,{classes},{most}]) {{
  %y = non_max_suppression(%b, %c, %t) {{center = {center}, count = {most}}} : i64[2,{classes},{most}]
  return %y
}}
"""


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.97])
@pytest.mark.parametrize("classes, n, most", [(1, 1, 1), (3, 70, 70), (5, 3000, 40), (1, 6000, 6000), (90, 300, 200)])
def test_non_max_suppression(arch: str, classes: int, n: int, most: int, threshold: float, center: bool) -> None:
    text = BOXES.format(n=n, classes=classes, most=most, center=str(center).lower())
    # Where it is small, the kernel for which no workspace is needed would be chosen.
    always = pipeline(2, "cuda").replace("select-kernels{", "select-kernels{slow-flops=0 ")
    done = memc.compile(parse(text, "test"), target="cuda", arch=arch, pass_pipeline=always)
    assert done.load().manifest.library_functions == ("memc.cuda.non_max_suppression",)
    rng = np.random.default_rng(1)
    candidates = np.stack([[rng.permutation(n) for _ in range(classes)] for _ in range(2)]).astype(np.int64)
    candidates[rng.random(candidates.shape) < 0.05] = -1
    boxes = boxes_of(n, center, n)
    inputs = {"b": boxes, "c": candidates, "t": np.array(threshold, np.float32)}
    (wanted,) = evaluate(parse(text), inputs).values()
    (found,) = done.load().run_numpy(inputs).values()
    np.testing.assert_array_equal(found, wanted)

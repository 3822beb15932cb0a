# SPDX-License-Identifier: Apache-2.0
"""Sorts and running sums and products on the CPU: how their time grows with the axis, beside numpy's stable sort.

    python benchmarks/sorts.py [--runs 5] [--seconds 60] [--cpu-time]
    python benchmarks/sorts.py --cuda [--runs 20] [--most 10000000]     beside PyTorch on the first GPU

A row is one op on f32 (or the type that it names) at an axis of n and of 2n elements: milliseconds of a run of the compiled
program (the least of `--runs`, or of as many as `--seconds` allow), how often the time doubles when n does ("growth": 1 is
linear, 2 quadratic), and milliseconds of numpy in the same process: `argsort(kind="stable")` of the values and the wanted
ones taken along the axis, or `cumsum` and `cumprod`. Every result is held to numpy's. `--cpu-time` measures what the process
used of the processor, for one thread (TVM_NUM_THREADS=1) on a machine that others use too.

`--cuda`: milliseconds of a run of the program on CUDA, of its kernels alone, and of `torch.sort(stable=True)`, `torch.topk`,
`torch.cumsum` or `torch.cumprod`; each the mean of `--runs` calls one after another. Axes of up to `--most` elements. Every
result is held to PyTorch's.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import memc
from memc.ir.ops.shared.op_def import chosen_kernel
from memc.ir.text.parser import parse

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """`axis` of `shape(n)` has n elements; of a sort, the first `part` n are wanted (or so many, from 1 on)."""

    op: str
    shape: Callable[[int], tuple[int, ...]]
    axis: int
    n: int
    part: float = 1
    dtype: str = "f32"
    data: str = "random"


NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i64": np.int64, "u8": np.uint8}

CASES = [
    Case("top_k", lambda n: (n,), 0, 1_000, 10),
    Case("top_k", lambda n: (n,), 0, 10_000, 10),
    Case("top_k", lambda n: (n,), 0, 100_000, 10),
    Case("top_k", lambda n: (n,), 0, 500_000, 10),
    Case("top_k", lambda n: (n,), 0, 500_000, 10, data="ascending"),
    Case("top_k", lambda n: (n,), 0, 500_000, 0.1),
    Case("top_k", lambda n: (n,), 0, 1_000),
    Case("top_k", lambda n: (n,), 0, 10_000),
    Case("top_k", lambda n: (n,), 0, 100_000),
    Case("top_k", lambda n: (n,), 0, 500_000),
    Case("top_k", lambda n: (n,), 0, 500_000, data="equal"),
    Case("top_k", lambda n: (n,), 0, 500_000, dtype="f16"),
    Case("top_k", lambda n: (n,), 0, 500_000, dtype="f64"),
    Case("top_k", lambda n: (n,), 0, 500_000, dtype="i64"),
    Case("top_k", lambda n: (n,), 0, 500_000, dtype="u8"),
    Case("top_k", lambda n: (20_000, n), 1, 10, 3),
    Case("top_k", lambda n: (20_000, n), 1, 10),
    Case("top_k", lambda n: (500, n), 1, 1_000, 5),
    Case("top_k", lambda n: (500, n), 1, 1_000),
    Case("top_k", lambda n: (n, 100), 0, 1_000, 5),
    Case("top_k", lambda n: (n, 100), 0, 1_000),
    Case("sort_ranks", lambda n: (n,), 0, 100_000),
    Case("cumsum", lambda n: (n,), 0, 200_000),
    Case("cumsum", lambda n: (500, n), 1, 1_000),
    Case("cumsum", lambda n: (n, 500), 0, 1_000),
    Case("cumprod", lambda n: (n,), 0, 200_000),
    Case("cumprod", lambda n: (500, n), 1, 1_000),
    Case("cumprod", lambda n: (n, 500), 0, 1_000),
]


def wanted(case: Case, n: int) -> int:
    return int(case.part) if case.part > 1 else max(int(case.part * n), 1)


def program(case: Case, n: int) -> str:
    shape = case.shape(n)
    whole = f"{case.dtype}[{','.join(map(str, shape))}]"
    kept = f"[{','.join(str(wanted(case, n) if a == case.axis else size) for a, size in enumerate(shape))}]"
    positions = f"i64[{','.join(map(str, shape))}]"
    ops = {
        "top_k": (f"k = {wanted(case, n)}, largest = true", f"{case.dtype}{kept}, i64{kept}"),
        "sort_ranks": ("descending = false", positions),
    }
    attrs, results = ops.get(case.op, ("exclusive = false, reverse = false", whole))
    names = "%a, %b" if case.op == "top_k" else "%a"
    return (
        f"func @main(%x: {whole} {{role = input}}) -> ({results}) {{\n"
        f"  {names} = {case.op}(%x) {{axis = {case.axis}, {attrs}}} : {results}\n  return {names}\n}}\n"
    )


def data(case: Case, n: int) -> Array:
    shape, dtype, rng = case.shape(n), NUMPY[case.dtype], np.random.default_rng(1)
    if case.data == "equal":
        return np.ones(shape, dtype)
    if case.data == "ascending":
        return np.arange(n, dtype=dtype)
    if case.op == "cumprod":
        return rng.uniform(0.9999, 1.0001, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, np.iinfo(dtype).max, shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


def reference(case: Case, n: int, x: Array) -> list[Array]:
    if case.op in ("cumsum", "cumprod"):
        return [getattr(np, case.op)(x, axis=case.axis, dtype=x.dtype)]
    if case.op == "sort_ranks":
        order = np.argsort(x, axis=case.axis, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(n), case.axis)
        return [ranks]
    largest = ~x if case.dtype == "u8" else -x
    order = np.argsort(largest, axis=case.axis, kind="stable")
    positions = np.take(order, range(wanted(case, n)), axis=case.axis)
    return [np.take_along_axis(x, positions, case.axis), positions]


def milliseconds(run: Callable[[], Any], options: argparse.Namespace) -> float:
    """The least of several runs after a first one that is not counted, or of those that `--seconds` allow."""
    clock = time.process_time if options.cpu_time else time.perf_counter
    run()
    times: list[float] = []
    while len(times) < options.runs and sum(times) < options.seconds:
        start = clock()
        run()
        times.append(clock() - start)
    return 1e3 * min(times)


def measure(case: Case, n: int, options: argparse.Namespace) -> tuple[float, float]:
    """Milliseconds of memc and of numpy."""
    x = data(case, n)
    executable = memc.compile(parse(program(case, n))).load()
    expected = reference(case, n, x)
    for found, right in zip(executable(x=x).values(), expected):
        if case.op.startswith("cum"):
            np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-2)
        else:
            np.testing.assert_array_equal(found, right)
    ours = milliseconds(lambda: executable(x=x), options)
    theirs = milliseconds(lambda: reference(case, n, x), options)
    return ours, theirs


SIZES = (10_000, 200_000, 1_000_000, 10_000_000)
CUDA_CASES = [
    *(Case("top_k", lambda n: (n,), 0, n) for n in SIZES),
    *(Case("top_k", lambda n: (n,), 0, n, 10) for n in SIZES),
    *(Case("top_k", lambda n: (n,), 0, n, 1000) for n in SIZES),
    Case("top_k", lambda n: (n,), 0, 1_000_000, 0.1),
    *(Case("top_k", lambda n: (n,), 0, 1_000_000, dtype=dtype) for dtype in ("f16", "f64", "i64", "u8")),
    Case("top_k", lambda n: (n,), 0, 1_000_000, data="equal"),
    Case("top_k", lambda n: (1000, n), 1, 1_000),
    Case("top_k", lambda n: (1000, n), 1, 1_000, 10),
    Case("top_k", lambda n: (n, 1000), 0, 1_000),
    Case("top_k", lambda n: (100_000, n), 1, 10),
    *(Case(op, lambda n: (n,), 0, n) for op in ("cumsum", "cumprod") for n in SIZES),
    *(Case(op, lambda n: (1000, n), 1, 1_000) for op in ("cumsum", "cumprod")),
    *(Case(op, lambda n: (n, 1000), 0, 1_000) for op in ("cumsum", "cumprod")),
]


def torch_results(case: Case, n: int, x: Any) -> list[Any]:
    import torch

    if case.op != "top_k":
        return [getattr(torch, case.op)(x, case.axis)]
    k = wanted(case, n)
    if k == n:
        return list(torch.sort(x, dim=case.axis, descending=True, stable=True))
    return list(torch.topk(x, k, case.axis))


def milliseconds_on_cuda(run: Callable[[], Any], runs: int) -> float:
    """The mean of calls one after another, after some that are not counted."""
    import torch

    for _ in range(3):
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(runs):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / runs


def measure_on_cuda(case: Case, options: argparse.Namespace) -> tuple[float, float, float]:
    """Milliseconds of memc's program, of its kernels alone, and of PyTorch."""
    import torch
    import tvm_ffi

    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    x = torch.from_numpy(data(case, case.n)).cuda()
    compiled = memc.compile(parse(program(case, case.n)), target="cuda", arch=arch)
    executable = compiled.load()
    right = torch_results(case, case.n, x)
    for found, expected in list(zip(executable(x=x).values(), right))[
        : 2 if case.op != "top_k" or wanted(case, case.n) == case.n else 1
    ]:
        found = torch.from_dlpack(found)
        if case.op == "top_k":
            assert torch.equal(found, expected), case
        else:
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=5e-1)
    (op,) = compiled.module.main.ops
    kernel = chosen_kernel(op)
    assert kernel is not None
    room = 0 if op.workspace is None else op.workspace.type.nbytes
    results = [torch.empty_like(r) for r in right]
    scratch = [torch.empty(room, dtype=torch.uint8, device="cuda")] if room else []
    arguments = [*map(tvm_ffi.from_dlpack, (x, *results, *scratch)), *kernel.scalars(op)]
    call = tvm_ffi.get_global_func(kernel.symbol)
    with tvm_ffi.use_torch_stream():
        alone = milliseconds_on_cuda(lambda: call(*arguments), options.runs)
    ours = milliseconds_on_cuda(lambda: executable(x=x), options.runs)
    return ours, alone, milliseconds_on_cuda(lambda: torch_results(case, case.n, x), options.runs)


def compare_on_cuda(options: argparse.Namespace) -> None:
    print("| op | shape | axis | k | data | program ms | kernels ms | torch ms | kernels / torch |")
    print("| --- | --- | --: | --: | --- | --: | --: | --: | --: |")
    for case in CUDA_CASES:
        if case.n > options.most:
            continue
        ours, alone, theirs = measure_on_cuda(case, options)
        shape = " x ".join(f"{size:,}" for size in case.shape(case.n))
        k = f"{wanted(case, case.n):,}" if case.op == "top_k" else ""
        times = f"{ours:.4f} | {alone:.4f} | {theirs:.4f} | {alone / theirs:.2f}"
        print(f"| {case.op} | {shape} | {case.axis} | {k} | {case.dtype} {case.data} | {times} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--most", type=int, default=10_000_000)
    options = parser.parse_args()
    if options.cuda:
        return compare_on_cuda(options)
    print("| op | shape | axis | k | data | n ms | 2n ms | growth | numpy n ms | 2n ms | growth | memc / numpy |")
    print("| --- | --- | --: | --: | --- | --: | --: | --: | --: | --: | --: | --: |")
    for case in CASES:
        k = f"{wanted(case, case.n):,}" if case.op == "top_k" else ""
        ours, theirs = zip(*(measure(case, n, options) for n in (case.n, 2 * case.n)))
        cells = [
            case.op,
            " x ".join(f"{size:,}" for size in case.shape(case.n)),
            case.axis,
            k,
            f"{case.dtype} {case.data}",
        ]
        for times in (ours, theirs):
            cells += [f"{times[0]:.3f}", f"{times[1]:.3f}", f"{math.log2(times[1] / times[0]):.2f}"]
        print("| " + " | ".join(map(str, [*cells, f"{ours[1] / theirs[1]:.2f}"])) + " |", flush=True)


if __name__ == "__main__":
    main()

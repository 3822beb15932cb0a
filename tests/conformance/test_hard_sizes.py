# SPDX-License-Identifier: Apache-2.0
"""Small models whose sizes, peaks and budgets have broken memory planners, end to end against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import memc
from memc.ir.liveness import lifetimes, lower_bound
from memc.solvers.placement import Buffer, Problem, solve

from .hard_models import check, data, model


def test_the_arena_does_not_grow_with_the_weights() -> None:
    body = "(float[1,{c},8,8] x) => (float[1,8,8,8] y) {{ y = Conv<kernel_shape: ints = [1,1]>(x, w) }}"
    arenas = [
        memc.compile(model(body.format(c=c), initializers={"w": data((8, c, 1, 1))}), plan_only=True).report.arena_bytes
        for c in (4, 1024)
    ]
    assert arenas == [0, 0]


def test_zero_size_tensors() -> None:
    check(
        model("(float[0,1030] x, float[1030,768] w) => (float[0,768] y) { y = MatMul(x, w) }"),
        {"x": data((0, 1030)), "w": data((1030, 768))},
    )
    proto = model(
        "(float[4,3] x) => (float[4,3] y) { e = Slice(x, zero, zero, zero) y = Concat<axis: int = 0>(e, x) }",
        initializers={"zero": np.array([0])},
    )
    check(proto, {"x": data((4, 3))})
    proto = model(
        "(float[0,3] x) => (float[0,3] y) { y = Slice(x, last, first, axis, back) }",
        initializers={
            "last": np.array([-1]),
            "first": np.array([np.iinfo(np.int64).min]),
            "axis": np.array([0]),
            "back": np.array([-1]),
        },
    )
    check(proto, {"x": data((0, 3))})


def test_the_textbook_placement() -> None:
    problem = Problem((Buffer(1000, 0, 2), Buffer(400, 3, 6), Buffer(500, 3, 6)))
    assert solve(problem, "auto").peak == 1000


def test_fusion_never_raises_the_peak() -> None:
    # Fusing Exp into the last op would keep the large operand alive beside the large temporary.
    proto = model(
        "(float[64,256] x) => (float[64] y) { a = Neg(x) e = Exp(a) s = ReduceSum<keepdims: int = 0>(e, one) "
        "b = Tanh(x) c = Mul(b, b) t = ReduceSum<keepdims: int = 0>(c, one) y = Add(s, t) }",
        initializers={"one": np.array([1])},
    )
    arenas = [memc.compile(proto, opt_level=level, plan_only=True).report.arena_bytes for level in (0, 1, 2)]
    assert arenas[2] <= arenas[1] <= arenas[0]
    check(proto, {"x": data((64, 256))}, levels=(2,))


def test_a_budget_below_the_possible(tmp_path: Any) -> None:
    proto = model("(float[64,64] x) => (float[64,64] y) { a = Exp(x) b = Tanh(a) c = MatMul(a, b) y = Add(c, a) }")
    peak = memc.compile(proto, plan_only=True).report.peak_bytes
    out = tmp_path / "m.memc"
    with pytest.raises(memc.MemcError, match=f"least reachable peak is {peak} bytes") as caught:
        memc.compile(proto, out, memory_budget=peak - 1)
    assert caught.value.exit_code == 4
    assert not list(tmp_path.iterdir())
    assert memc.compile(proto, out, memory_budget=peak).report.peak_bytes == peak


def test_lower_budgets_never_give_higher_peaks() -> None:
    proto = model("(float[64,64] x) => (float[64,64] y) { a = Exp(x) b = Tanh(a) c = MatMul(a, b) y = Add(c, a) }")
    full = memc.compile(proto, plan_only=True).report.peak_bytes
    peaks = []
    for percent in range(100, 0, -10):
        try:
            report = memc.compile(proto, plan_only=True, memory_budget=full * percent // 100).report
        except memc.MemcError as error:
            assert error.exit_code == 4
            continue
        assert report.peak_bytes <= full * percent // 100
        peaks.append(report.peak_bytes)
    assert peaks == sorted(peaks, reverse=True) and peaks


@pytest.mark.parametrize("shape", ["gemm", "grouped"])
def test_cuda_kernels_fit_the_gpu(shape: str) -> None:
    if shape == "gemm":
        proto = model(
            "(float[1,8] x) => (float[1,16] y) { y = Gemm(x, w, b) }",
            initializers={"w": data((8, 16)), "b": data((16,), 1)},
        )
    else:
        proto = model(
            "(float[1,128,56,56] x) => (float[1,256,56,56] y) { y = Conv<group: int = 2, kernel_shape: ints = [3,3], "
            "pads: ints = [1,1,1,1]>(x, w) }",
            initializers={"w": data((256, 64, 3, 3))},
        )
    from shutil import which

    if which("nvcc") is None:
        pytest.skip("needs nvcc")
    compilation = memc.compile(proto, target="cuda", arch="sm_90", kernels="generated")
    assert compilation.path is not None and compilation.report.kernels >= 1


def test_the_lower_bound_is_reached_on_a_chain() -> None:
    steps = " ".join(f"t{i + 1} = Softmax(t{i})" for i in range(6))
    compilation = memc.compile(model(f"(float[32,64] x) => (float[32,64] y) {{ t0 = Neg(x) {steps} y = Neg(t6) }}"))
    bound = lower_bound(lifetimes(compilation.module.main), 64)
    assert compilation.report.arena_bytes == bound == compilation.report.lower_bound_bytes

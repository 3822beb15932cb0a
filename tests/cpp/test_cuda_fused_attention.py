# SPDX-License-Identifier: Apache-2.0
"""The forward pass of attention in training by a graph of cuDNN's ops, which the fake cuDNN computes one by one."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from test_cuda_attention_training import KINDS, call, empty
from training_cases import Training

from memc.ir.types import DType


@pytest.fixture(autouse=True)
def own(kernels: None) -> None:
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, b"cubin")


@pytest.fixture
def runs(fake: Path) -> ctypes.c_int:
    """How many graphs have run."""
    count = ctypes.c_int.in_dll(ctypes.CDLL(str(fake)), "fake_graph_runs")
    count.value = 0
    return count


FUSED = [
    Training((2, 40, 64), (2, 70, 64), 64, 1),
    Training((2, 3, 33, 64), (2, 3, 33, 64), 32, 2, attrs={"diagonal": 0}),
    Training((2, 33, 4, 16), (2, 33, 2, 16), 16, 1, attrs={"diagonal": 0}),
]
"""One outer axis of heads; heads before positions, causal; and behind them, with fewer heads of keys."""


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("case", FUSED, ids=str)
def test_a_graph_computes_attention(case: Training, kind: str, runs: ctypes.c_int) -> None:
    case = replace(case, dtype=DType(kind))
    *forward, _ = case.operands
    (result, log_sum), _ = case.expected()
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    assert runs.value > 0
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=KINDS[kind], atol=KINDS[kind])
    np.testing.assert_allclose(found[1], log_sum, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fails", ["cudnnBackendFinalize", "cudnnBackendExecute"])
def test_where_cudnn_has_no_kernel_memc_has(fails: str, runs: ctypes.c_int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAILS", fails)
    columns = 24 if fails.endswith("Finalize") else 40  # A shape of its own: choices are kept.
    case = Training((2, 33, columns), (2, 65, columns), columns, 1, dtype=DType.F16)
    *forward, _ = case.operands
    (result, log_sum), _ = case.expected()
    found = empty(case.op("attention_training", forward))
    call(case.op("attention_training", forward), forward, found)
    assert runs.value == 0
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=4e-3, atol=4e-3)
    np.testing.assert_allclose(found[1], log_sum, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    "case",
    [
        Training((2, 33, 64), (2, 65, 64), 64, 1),
        Training((2, 33, 12), (2, 65, 12), 12, 1, dtype=DType.F16),
        Training((2, 33, 136), (2, 65, 136), 136, 1, dtype=DType.F16),
        Training((2, 33, 64), (2, 65, 64), 64, 1, attrs={"diagonal": 5}, dtype=DType.F16),
        Training((2, 33, 64), (2, 65, 64), 64, 1, (33, 65), dtype=DType.F16),
        Training((4, 33, 2, 16), (2, 33, 2, 16), 16, 1, dtype=DType.F16),
    ],
    ids=["f32", "columns", "many columns", "another diagonal", "a mask", "shared along the outer axis"],
)
def test_other_calls_are_never_cudnns(case: Training, runs: ctypes.c_int) -> None:
    *forward, _ = case.operands
    (result, _), _ = case.expected()
    op = case.op("attention_training", forward)
    found = empty(op)
    call(op, forward, found)
    assert runs.value == 0
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=4e-3, atol=4e-3)


def test_a_result_in_the_place_of_q_is_not_cudnns(runs: ctypes.c_int) -> None:
    case = Training((2, 33, 64), (2, 65, 64), 64, 1, dtype=DType.F16)
    *forward, _ = case.operands
    (result, _), _ = case.expected()
    op = case.op("attention_training", forward)
    found = empty(op)
    found[0] = forward[0]
    call(op, forward, found)
    assert runs.value == 0
    np.testing.assert_allclose(found[0].astype(np.float64), result, rtol=4e-3, atol=4e-3)

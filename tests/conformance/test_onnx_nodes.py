# SPDX-License-Identifier: Apache-2.0
"""onnx's generated node tests: all selected ones evaluated with numpy, a cross-section compiled for the CPU and run.

`benchmarks/onnx_backend.py --mode compiled` compiles and runs them all.
"""

from __future__ import annotations

import backend
import numpy as np
import onnx
import pytest
import workers

BATCHES = 16

COMPILED = (
    "test_add_bcast",
    "test_less_bcast",
    "test_argmax_keepdims_random_select_last_index",
    "test_attention_4d_causal",
    "test_averagepool_2d_ceil",
    "test_basic_conv_with_padding",
    "test_batchnorm_epsilon",
    "test_clip_example",
    "test_concat_3d_axis_negative_1",
    "test_convtranspose_pads",
    "test_celu",
    "test_div_bcast",
    "test_isinf",
    "test_expand_dim_changed",
    "test_gather_negative_indices",
    "test_gathernd_example_float32",
    "test_gelu_tanh_1",
    "test_gemm_all_attributes",
    "test_gridsample_bicubic",
    "test_gru_seq_length",
    "test_instancenorm_example",
    "test_layer_normalization_3d_axis1_epsilon",
    "test_logsoftmax_axis_1",
    "test_lstm_with_peepholes",
    "test_matmul_bcast",
    "test_maxpool_with_argmax_2d_precomputed_pads",
    "test_nonmaxsuppression_suppress_by_IOU",
    "test_onehot_with_axis",
    "test_pow_types_float32_int32",
    "test_averagepool_2d_pads_count_include_pad",
    "test_reduce_l2_keep_dims_random",
    "test_center_crop_pad_crop_and_pad",
    "test_resize_upsample_scales_cubic",
    "test_roialign_aligned_true",
    "test_scatter_elements_with_reduction_max",
    "test_scatternd_add",
    "test_slice_neg_steps",
    "test_softmax_axis_0",
    "test_split_equal_parts_2d",
    "test_top_k_smallest",
    "test_transpose_all_permutations_5",
    "test_where_example",
    "test_bernoulli_seed",
    "test_training_dropout_mask",
    "test_scan_sum",
)


def report(outcomes: list[backend.Outcome]) -> str:
    return "\n".join(f"{o.name}: {o.verdict}: {o.detail}" for o in outcomes)


def test_selection() -> None:
    assert len(backend.selected()) > 1000
    if onnx.__version__.startswith("1.23."):
        assert len(backend.collect()) == 1884 and len(backend.selected()) == 1267


@pytest.mark.parametrize("part", range(BATCHES))
def test_evaluated(part: int) -> None:
    names = sorted(backend.selected())[part::BATCHES]
    outcomes = [backend.run_case(backend.selected()[name], "evaluate") for name in names]
    bad = [o for o in outcomes if o.verdict != "match"]
    assert not bad, report(bad)


def test_compiled() -> None:
    cases = {name: backend.selected()[name] for name in COMPILED if name in backend.selected()}
    assert len(cases) > 0.9 * len(COMPILED)
    outcomes = workers.run(
        list(cases),
        lambda name: backend.run_case(cases[name], "compiled"),
        lambda name, verdict: backend.Outcome(name, cases[name].ops, verdict, "the worker process ended"),
        timeout=120.0,
    )
    bad = [o for o in outcomes if o.verdict != "match"]
    assert not bad, report(bad)


def test_a_crash_and_a_hang_are_results() -> None:
    import os
    import signal
    import time

    def task(name: str) -> str:
        if name == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "hang":
            time.sleep(60)
        return f"{name} ran"

    results = workers.run(
        ["a", "crash", "b", "hang", "c"], task, lambda name, verdict: f"{name} -> {verdict}", workers=1, timeout=1.0
    )
    assert results == ["a ran", "crash -> crash", "b ran", "hang -> hang", "c ran"]


def test_a_wrong_result_is_seen() -> None:
    case = backend.selected()["test_relu"]
    right, _ = backend.run_evaluated(case)
    assert backend.compare(right, case) == ""
    assert "elements differ" in backend.compare({n: a + 1 for n, a in right.items()}, case)
    assert "expected float32" in backend.compare({n: a.astype("f8") for n, a in right.items()}, case)
    assert "is missing" in backend.compare({}, case)


def test_wrong_draws_are_seen() -> None:
    case = backend.selected()["test_training_dropout_mask"]
    right, _ = backend.run_evaluated(case)
    assert backend.compare(right, case) == ""
    y, mask = case.expected
    assert "as the mask says" in backend.compare({**right, y: right[y] * np.float32(1.01)}, case)
    assert "as the mask says" in backend.compare({**right, mask: ~right[mask]}, case)
    x = case.inputs[case.model.graph.input[0].name]
    everything = {y: (x * 4).astype(np.float32), mask: np.ones_like(right[mask])}
    assert backend.compare(everything, case) == "expected a share of about 0.25, got 1"
    case = backend.selected()["test_bernoulli_seed"]
    (name,) = case.expected
    right, _ = backend.run_evaluated(case)
    assert backend.compare(right, case) == ""
    assert "expected 1 and 0" in backend.compare({name: right[name] / 2}, case)

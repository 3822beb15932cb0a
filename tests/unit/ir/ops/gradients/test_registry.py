# SPDX-License-Identifier: Apache-2.0
"""Every op has a gradient that agrees with finite differences, or a reason to have none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from memc.ir.ops.shared.op_def import flat, registered
from memc.ir.types import DType

NO_GRADIENT = {
    "attention": "recognized after gradients are built",
    "attention_grad": "a second derivative",
    "attention_mask_grad": "a second derivative",
    "bitcast": "bits are not numbers",
    **{
        f"{kind}_{end}": "inserted after gradients are built"
        for kind in ("offload", "prefetch")
        for end in ("start", "done")
    },
    "max_pool_grad": "a second derivative",
    "max_pool_grad_channels_last": "a second derivative",
    "roi_align_adaptive": "train with a sampling_ratio, as its gradient has a size that the boxes' data decide",
    "roi_align_lines": "stands in the expansion of roi_align_adaptive",
    "scatter_elements_combine": "stands in the expansion of scatter_elements, which has a rule",
    "scatter_nd_combine": "stands in the expansion of scatter_nd, which has a rule",
}

FLAT = {
    **dict.fromkeys(("ceil", "floor", "round", "sign", "trunc"), "a step function"),
    **dict.fromkeys(("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"), "a truth value"),
    **dict.fromkeys(("is_inf", "is_nan", "logical_and", "logical_not", "logical_or", "logical_xor"), "a truth value"),
    **dict.fromkeys(
        ("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"), "integers"
    ),
    **dict.fromkeys(("arg_max", "arg_min", "max_pool_indices", "max_pool_taps", "rank_positions"), "positions"),
    "max_pool_taps_channels_last": "positions",
    **dict.fromkeys(("non_max_suppression", "search_sorted", "sort_ranks"), "positions"),
    **dict.fromkeys(("constant", "iota"), "no operands"),
    **dict.fromkeys(("random_normal", "random_uniform"), "a seed, which is an integer"),
    **dict.fromkeys(("decode_dynamic", "encode_dynamic"), "bytes that stand for numbers, or their making"),
    "assign": "writes a state, after all gradients",
}

RNG = np.random.default_rng(31)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def above(low: float, *shape: int) -> np.ndarray:
    return RNG.uniform(low, low + 1, shape)


X, Y = some(2, 3, 4, 5), some(3, 4)
WINDOW = {"strides": (1, 2), "pads": (1, 0, 0, 1), "dilations": (1, 1)}
POOL = {**WINDOW, "kernel": (2, 3)}
SAMPLE = {"mode": "linear", "padding_mode": "zeros", "align_corners": False}
REGION = {"size": (2, 2), "sampling_ratio": 2, "spatial_scale": 1.0, "mode": "avg", "half_pixel": True}
CASES: dict[str, tuple[list[np.ndarray], dict[str, object]]] = {
    **{
        name: ([some(3, 4)], {})
        for name in (
            *("abs", "acos", "asin", "asinh", "atan", "atanh", "copy", "cos", "cosh", "erf", "exp", "hold", "neg"),
            "relu",
            *("sigmoid", "silu", "sin", "sinh", "softplus", "tan", "tanh"),
        )
    },
    **{name: ([above(0.5, 3, 4)], {}) for name in ("log", "reciprocal", "rsqrt", "sqrt")},
    "acosh": ([above(1.2, 3, 4)], {}),
    **{name: ([Y, above(0.5, 2, 1, 4)], {}) for name in ("add", "div", "fmod", "max", "min", "mod", "mul", "sub")},
    "pow": ([above(0.5, 3, 4), some(4)], {}),
    "clip": ([Y], {"min": -0.5, "max": 0.4}),
    "elu": ([Y], {"alpha": 1.3}),
    "gelu": ([Y], {"approximate": "none"}),
    "hard_sigmoid": ([3 * Y], {"alpha": 0.3, "beta": 0.5}),
    "leaky_relu": ([Y], {"alpha": 0.2}),
    "select": ([Y > 0, some(3, 4), some(4)], {}),
    "dropout": ([Y, np.array(4)], {"ratio": 0.4, "stream": 1}),
    "attention_training": (
        [some(2, 4, 3, 5), some(2, 2, 3, 5), some(2, 2, 3, 4), some(4, 1, 3)],
        {"axis": 2, "scale": 0.7, "diagonal": 1},
    ),
    "cast": ([Y], {"to": DType.F64}),
    "broadcast": ([some(3, 1)], {"shape": (2, 3, 4)}),
    "concat": ([some(2, 3), some(2, 1)], {"axis": 1}),
    "pad": ([Y], {"low": (1, 0), "high": (0, 2), "mode": "reflect", "value": 0.0}),
    "reshape": ([Y], {"shape": (2, 6)}),
    "slice": ([Y], {"starts": (2, 0), "stops": (0, 3), "steps": (-1, 2)}),
    "transpose": ([X], {"perm": (2, 0, 3, 1)}),
    **{f"reduce_{kind}": ([X], {"axes": (1, 3), "keepdims": False}) for kind in ("max", "mean", "min", "prod", "sum")},
    **{name: ([Y], {"axis": 1, "exclusive": True, "reverse": False}) for name in ("cumprod", "cumsum")},
    "matmul": ([some(2, 3, 4), some(5, 3)], {"transpose_a": True, "transpose_b": True}),
    "det": ([some(2, 3, 3)], {}),
    "conv": ([X, some(4, 3, 2, 3), some(4)], {**WINDOW, "group": 1}),
    "conv_channels_last": ([X, some(4, 2, 3, 5), some(4)], {**WINDOW, "group": 1}),
    "conv_grad_weight_channels_last": ([X, some(2, 3, 2, 4)], {**WINDOW, "group": 1, "kernel": (2, 3)}),
    "conv_transpose_channels_last": ([X, some(5, 2, 3, 2), some(2)], {**WINDOW, "group": 1, "output_padding": (0, 1)}),
    "conv_grad_weight": ([X, some(2, 4, 4, 2)], {**WINDOW, "group": 1, "kernel": (2, 3)}),
    "conv_transpose": ([X, some(3, 2, 2, 3), some(2)], {**WINDOW, "group": 1, "output_padding": (0, 1)}),
    "deform_conv": (
        [some(1, 2, 3, 4), some(2, 2, 2, 2), some(1, 8, 2, 3), some(1, 4, 2, 3)],
        {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1, "offset_group": 1},
    ),
    "col2im": ([some(1, 8, 4)], {"shape": (3, 4), "kernel": (2, 2), **WINDOW, "pads": (0,) * 4}),
    "grid_sample": ([some(1, 2, 3, 4), 1.2 * some(1, 2, 3, 2)], SAMPLE),
    "roi_align": ([some(2, 1, 4, 5), np.array([[0.3, 0.2, 3.4, 2.9]]), np.array([1])], REGION),
    **{name + end: ([X], POOL) for name in ("max_pool", "sum_pool") for end in ("", "_channels_last")},
    "sum_pool_grad_channels_last": (
        [some(1, 4, 3, 2)],
        {**POOL, "strides": (1, 1), "pads": (1, 0, 0, 0), "shape": (4, 5)},
    ),
    "sum_pool_grad": ([some(1, 2, 4, 3)], {**POOL, "strides": (1, 1), "pads": (1, 0, 0, 0), "shape": (4, 5)}),
    "avg_pool": ([X], {**POOL, "extra": (0, 1), "count_include_pad": True}),
    "batch_norm": ([X, some(3), some(3), some(3), above(0.5, 3)], {"epsilon": 1e-2, "momentum": 0.9}),
    "batch_norm_training": ([X, some(3), some(3)], {"epsilon": 1e-2}),
    "layer_norm": ([X, some(4, 5), some(5)], {"axis": 2, "epsilon": 1e-2}),
    "channel_square_sum": ([X], {"size": 3}),
    "lrn": ([X], {"size": 3, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    "softmax": ([X], {"axis": 2}),
    "log_softmax": ([X], {"axis": 1}),
    "negative_log_likelihood": ([some(4, 6), np.array([0, 5, 2, 2])], {"ignore_index": 2}),
    "binary_cross_entropy": ([RNG.uniform(0.05, 0.95, (3, 4)), RNG.uniform(0, 1, (3, 4))], {}),
    "binary_cross_entropy_with_logits": ([9 * Y, RNG.uniform(0, 1, (3, 4))], {}),
    "softmax_cross_entropy": ([some(4, 6), np.array([0, 5, 2, 2])], {"ignore_index": 2, "label_smoothing": 0.1}),
    "gather": ([X, np.array([[1, 1], [0, -2]])], {"axis": 2}),
    "gather_elements": ([Y, RNG.integers(-3, 3, (2, 4))], {"axis": 0}),
    "gather_grad": ([np.array([0, 2, 2]), some(3, 4)], {"axis": 0, "extent": 3}),
    "gather_nd": ([X, RNG.integers(-2, 2, (4, 2))], {"batch_dims": 0}),
    "scatter_elements": ([Y, RNG.integers(0, 3, (2, 4)), some(2, 4)], {"axis": 0, "reduction": "none"}),
    "scatter_nd": ([Y, np.array([[1], [1]]), some(2, 4)], {"reduction": "add"}),
    "top_k": ([Y], {"axis": 1, "k": 2, "largest": True}),
    "resize": ([Y, np.array([[0, 1], [1, 2], [3, 3]], np.int32), some(3, 2)], {"axes": (1,)}),
    "resize_nearest": ([Y, np.array([0, 0, 3], np.int32)], {"axes": (1,)}),
}
"""Operands and attributes for each op with a rule. Other files here go through the variants of an op."""

TABLES = frozenset({"resize", "resize_nearest"})
"""Ops whose operands after the first must be constants."""


def test_every_op_has_a_rule_or_a_reason() -> None:
    without = {definition.name for definition in registered() if definition.gradient is None}
    assert without == set(NO_GRADIENT), "state a rule, or add the reason here"


def test_every_flat_op_has_a_reason() -> None:
    assert {definition.name for definition in registered() if definition.gradient is flat} == set(FLAT)


@pytest.mark.parametrize("name", [d.name for d in registered() if d.gradient not in (None, flat)])
def test_every_rule_agrees_with_finite_differences(check_gradient: Callable[..., object], name: str) -> None:
    assert name in CASES, f"add operands and attributes of {name} to CASES"
    inputs, attrs = CASES[name]
    given = inputs[:1] if name in TABLES else inputs

    def build(b, x):  # type: ignore[no-untyped-def]
        constants = [b.constant(array) for array in inputs[len(given) :]]
        return [v for v in b.multi(name, [*x, *constants], **attrs).results if v.type.dtype.is_float]

    check_gradient(build, given)


def test_no_case_without_an_op() -> None:
    assert set(CASES) <= {definition.name for definition in registered()}

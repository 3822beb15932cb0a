# SPDX-License-Identifier: Apache-2.0
"""Random graphs: gradients agree with finite differences, and mirror counts do not change a bit of them.

20 of them by default, 200 with the `nightly` profile.
"""

import copy

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memc.ir.evaluate import evaluate
from memc.ir.ops.shared.derivatives import zeros
from memc.passes.training.backward_pass import append_gradients, set_mirrors

from .conftest import finite_differences, function_of

SHAPE = (2, 2, 3, 3)
WINDOW = {"strides": (1, 1), "dilations": (1, 1)}
POOL = {**WINDOW, "kernel": (2, 2), "pads": (0, 0, 1, 1)}


def matrix_product(b, x, y):
    return b.op("matmul", [x, y], transpose_a=False, transpose_b=True)


def swapped_halves(b, x):
    def half(start):
        stops = (2, start + 1, 3, 3)
        return b.op("slice", [x], starts=(0, start, 0, 0), stops=stops, steps=(1, 1, 1, 1))

    return b.op("concat", [half(1), half(0)], axis=1)


def shifted(b, x):
    part = b.op("slice", [x], starts=(0, 0, 1, 0), stops=(2, 2, 3, 3), steps=(1, 1, 1, 1))
    return b.op("pad", [part], low=(0, 0, 0, 0), high=(0, 0, 1, 0), mode="constant", value=0.5)


def normalized(b, x):
    channel = b.constant(np.array([0.7, 1.2]))
    return b.multi("batch_norm_training", [x, channel, channel], epsilon=0.1).results[0]


def scattered(b, x, y):
    indices = b.constant(np.array([[1], [0], [1]]))
    rows = b.op("reshape", [x], shape=(4, 9))
    updates = b.op("slice", [b.op("reshape", [y], shape=(4, 9))], starts=(0, 0), stops=(3, 9), steps=(1, 1))
    return b.op("reshape", [b.op("scatter_nd", [rows, indices, updates], reduction="add")], shape=SHAPE)


def by_mean(b, x, y):
    return b.op("mul", [x, b.op("reduce_mean", [y], axes=(1, 3), keepdims=True)])


def largest(b, x):
    values = b.multi("top_k", [x], axis=3, k=2, largest=True).results[0]
    return b.op("pad", [values], low=(0, 0, 0, 0), high=(0, 0, 0, 1), mode="constant", value=0.0)


def plus(b, x, number):
    return b.op("add", [x, b.constant(np.array(number))])


def divided(b, x, y):
    return b.op("div", [x, plus(b, b.op("sin", [y]), 2.0)])


def power(b, x, y):
    return b.op("pow", [plus(b, b.op("sigmoid", [x]), 1.0), b.op("tanh", [y])])


def below_the_largest(b, x):
    return b.op("sub", [x, b.op("reduce_max", [x], axes=(0, 2), keepdims=True)])


def from_one_channel(b, x):
    part = b.op("slice", [x], starts=(0, 0, 0, 0), stops=(2, 1, 3, 3), steps=(1, 1, 1, 1))
    return b.op("broadcast", [part], shape=SHAPE)


def running_product(b, x):
    factors = plus(b, b.op("mul", [b.op("tanh", [x]), b.constant(np.array(0.5))]), 1.0)
    return b.op("cumprod", [factors], axis=2, exclusive=True, reverse=False)


def resized(b, x):
    index, weight = np.array([[0, 1], [1, 2], [1, 0]], np.int32), np.array([[0.3, 0.7], [1.2, -0.2], [0.5, 0.5]])
    return b.op("resize", [x, *(b.constant(t) for t in (index, weight, index, weight))], axes=(2, 3))


def sampled(b, x):
    grid = np.random.default_rng(3).uniform(-1.2, 1.2, (2, 3, 3, 2))
    return b.op("grid_sample", [x, b.constant(grid)], mode="cubic", padding_mode="reflection", align_corners=False)


def sampled_where(b, x, y):
    """x at positions near the middle that y moves."""
    part = b.op("transpose", [b.op("sin", [y])], perm=(0, 2, 3, 1))
    return b.op("grid_sample", [x, part], mode="linear", padding_mode="zeros", align_corners=True)


def grouped(b, x):
    weight = b.constant(np.random.default_rng(4).uniform(-1, 1, (2, 1, 3, 3)))
    return b.op("conv", [x, weight], strides=(1, 1), dilations=(2, 2), pads=(2,) * 4, group=2)


def attention(b, x, y):
    scores = b.op("softmax", [matrix_product(b, x, y)], axis=3)
    return b.op("matmul", [scores, y], transpose_a=False, transpose_b=False)


def joined(b, x, y):
    both = b.op("concat", [x, y], axis=1)
    return b.op("slice", [both], starts=(0, 3, 0, 0), stops=(2, -1, 3, 3), steps=(1, -2, 1, 1))


ONE = {
    **{
        name: (lambda b, x, name=name: b.op(name, [x]))
        for name in ("tanh", "sin", "sigmoid", "softplus", "erf", "silu", "relu", "neg", "atan")
    },
    "gelu": lambda b, x: b.op("gelu", [x], approximate="tanh"),
    "softmax": lambda b, x: b.op("softmax", [x], axis=3),
    "log_softmax": lambda b, x: b.op("log_softmax", [x], axis=1),
    "layer_norm": lambda b, x: b.op("layer_norm", [x], axis=2, epsilon=0.1),
    "batch_norm_training": normalized,
    "lrn": lambda b, x: b.op("lrn", [x], size=2, alpha=0.1, beta=0.75, bias=1.0),
    "max_pool": lambda b, x: b.op("max_pool", [x], **POOL),
    "avg_pool": lambda b, x: b.op("avg_pool", [x], **POOL, extra=(0, 0), count_include_pad=False),
    "transpose": lambda b, x: b.op("transpose", [x], perm=(1, 0, 3, 2)),
    "swapped_halves": swapped_halves,
    "shifted": shifted,
    "gather": lambda b, x: b.op("gather", [x, b.constant(np.array([2, 0, 2]))], axis=2),
    "cumsum": lambda b, x: b.op("cumsum", [x], axis=3, exclusive=False, reverse=True),
    "top_k": largest,
    "exp": lambda b, x: b.op("exp", [b.op("tanh", [x])]),
    "sqrt": lambda b, x: b.op("sqrt", [b.op("softplus", [x])]),
    "reciprocal": lambda b, x: b.op("reciprocal", [plus(b, b.op("mul", [x, x]), 1.0)]),
    "sum_pool": lambda b, x: b.op("sum_pool", [x], **POOL),
    "gather_elements": lambda b, x: b.op(
        "gather_elements", [x, b.constant(np.random.default_rng(6).integers(0, 3, SHAPE))], axis=3
    ),
    "reduce_max": below_the_largest,
    "broadcast": from_one_channel,
    "cumprod": running_product,
    "resize": resized,
    "grid_sample": sampled,
    "grouped": grouped,
    "dropout": lambda b, x: b.op("dropout", [x, b.constant(np.array(3))], ratio=0.25, stream=1),
}
TWO = {
    "add": lambda b, x, y: b.op("add", [x, y]),
    "sub": lambda b, x, y: b.op("sub", [x, y]),
    "mul": lambda b, x, y: b.op("mul", [b.op("tanh", [x]), y]),
    "max": lambda b, x, y: b.op("max", [x, y]),
    "matmul": matrix_product,
    "scatter_nd": scattered,
    "by_mean": by_mean,
    "div": divided,
    "pow": power,
    "attention": attention,
    "joined": joined,
    "sampled_where": sampled_where,
    "conv_by": lambda b, x, y: b.op("conv", [x, b.op("tanh", [y])], **WINDOW, pads=(1,) * 4, group=1),
    "select": lambda b, x, y: b.op("select", [b.op("less", [x, zeros(b, x.type)]), x, y]),
}
WITH_WEIGHT = {
    "conv": lambda b, x, w: b.op("conv", [x, w], **WINDOW, pads=(1,) * 4, group=1),
    "conv_transpose": lambda b, x, w: b.op(
        "conv_transpose", [x, w], **WINDOW, pads=(1,) * 4, group=1, output_padding=(0, 0)
    ),
}

STEP = st.tuples(st.sampled_from(sorted({**ONE, **TWO, **WITH_WEIGHT})), st.integers(0, 7), st.integers(0, 7))


def builder(steps):
    def build(b, given):
        x, y, weight = given
        values = [x, y]
        for name, first, second in steps:
            one, two = (values[-1 - k % len(values)] for k in (first, second))
            if name in ONE:
                values.append(ONE[name](b, one))
            elif name in TWO:
                values.append(TWO[name](b, one, two))
            else:
                values.append(WITH_WEIGHT[name](b, one, weight))
        return values[-1]

    return build


def gradients(module, loss, wrt, feeds, counts):
    set_mirrors(dict(zip(module.main.ops, counts)))
    found = append_gradients(module, module.main, loss, wrt)
    module.main.returns = list(found.values())
    return dict(zip(found, evaluate(module, feeds).values()))


@settings(max_examples=max(settings.default.max_examples // 10, 1), deadline=None)
@given(
    st.lists(STEP, min_size=1, max_size=10), st.lists(st.integers(0, 2), min_size=40, max_size=40), st.integers(0, 99)
)
def test_gradients_are_finite_differences(steps, counts, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, shape) for shape in (SHAPE, SHAPE, (2, 2, 3, 3))]
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    module, loss, wrt = function_of(builder(steps), arrays)
    expected = [finite_differences(module, feeds, value) for value in wrt]
    scale = max(1.0, *(np.abs(e).max() for e in expected))
    # A corner within the step (of relu, or where a maximum changes) has no finite difference to compare with.
    finer = [finite_differences(module, feeds, value, step=4e-6) for value in wrt]
    assume(all(np.abs(a - b).max() < 1e-7 * scale for a, b in zip(expected, finer)))
    plain = copy.deepcopy((module, loss, wrt))
    found = gradients(module, loss, wrt, feeds, [])
    for value, numbers in zip(wrt, expected):
        got = found.get(value, np.zeros(value.type.shape))
        np.testing.assert_allclose(got, numbers, rtol=0, atol=1e-6 * scale, err_msg=value.name)
    again = gradients(*plain, feeds, counts)
    assert {k.name: v.tobytes() for k, v in again.items()} == {k.name: v.tobytes() for k, v in found.items()}

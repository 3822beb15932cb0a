# SPDX-License-Identifier: Apache-2.0
"""Importing onnxruntime's DynamicQuantizeLSTM."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(11)
STEPS, BATCH, INPUT, HIDDEN = 6, 3, 5, 4


def data(*shape, scale=1.0):
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def node(directions, of, each, **given):
    """Inputs; `given` are the optional ones by name. onnxruntime wants one zero point for all columns, 0 for i8."""
    info, count = np.iinfo(of), (directions, 4 * HIDDEN) if each else (directions,)
    weights = [RANDOM.integers(info.min, info.max + 1, (directions, n, 4 * HIDDEN)).astype(of) for n in (INPUT, HIDDEN)]
    zero = np.full(count, 131 if of is np.uint8 else 0 if each else -3, of)
    settings = [v for _ in range(2) for v in (RANDOM.uniform(0.004, 0.008, count).astype(np.float32), zero)]
    names = ("B", "lengths", "h", "c", "P")
    return [data(STEPS, BATCH, INPUT), *weights, *(given.get(name) for name in names), *settings]


@pytest.mark.parametrize("of", [np.uint8, np.int8])
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "by column"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("known", [True, False])
def test_against_onnxruntime(same, of, each, direction, full, known):
    count = 2 if direction == "bidirectional" else 1
    given = {}
    if full:
        given = {"B": data(count, 8 * HIDDEN), "P": data(count, 3 * HIDDEN), "h": data(count, BATCH, HIDDEN, scale=0.3)}
        given["c"] = data(count, BATCH, HIDDEN)
    constant = (1, 2, 8, 9, 10, 11) if known else ()
    inputs = node(count, of, each, **given)
    # A rounding that ends at the other side of a half moves what follows by a step of the quantized state.
    same(
        "DynamicQuantizeLSTM", inputs, 3, known=constant, direction=direction, hidden_size=HIDDEN, rtol=1e-2, atol=1e-2
    )


def test_a_single_step_is_as_exact_as_its_products(same):
    inputs = node(1, np.uint8, False, B=data(1, 8 * HIDDEN), h=data(1, BATCH, HIDDEN))
    inputs[0] = inputs[0][:1]
    same("DynamicQuantizeLSTM", inputs, 3, hidden_size=HIDDEN, rtol=1e-5, atol=1e-6)
    attrs = {"clip": 0.5, "input_forget": 1, "activations": ["HardSigmoid", "Tanh", "Relu"], "activation_alpha": [0.3]}
    same("DynamicQuantizeLSTM", inputs, 3, hidden_size=HIDDEN, rtol=1e-5, atol=1e-6, activation_beta=[0.4], **attrs)


@pytest.mark.parametrize("known", [True, False])
def test_lengths(same, known):
    inputs = node(1, np.uint8, False, lengths=np.array([2, STEPS, 3], np.int32))
    constant = (4,) if known else ()
    same("DynamicQuantizeLSTM", inputs, 3, known=constant, hidden_size=HIDDEN, rtol=2e-2, atol=2e-2)


def test_refusals(run):
    inputs = node(1, np.uint8, False)
    inputs[8] = inputs[8].repeat(3)
    with pytest.raises(
        UnsupportedError, match=r"\(DynamicQuantizeLSTM\): expected 1 or 1 times 16 elements, got f32\[3\]"
    ):
        run("DynamicQuantizeLSTM", inputs, 3, hidden_size=HIDDEN)

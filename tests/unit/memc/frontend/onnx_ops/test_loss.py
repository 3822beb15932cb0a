# SPDX-License-Identifier: Apache-2.0
"""Importing the two losses, against a loop over the targets."""

import numpy as np
import pytest

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(9)


def by_hand(scores, target, weight, ignored, reduction):
    """The definition, one target after another, in f64."""
    losses, weights = np.zeros(target.shape), np.zeros(target.shape)
    for place in np.ndindex(target.shape):
        label = target[place]
        if label == ignored:
            continue
        weights[place] = 1 if weight is None else weight[label]
        losses[place] = -scores[(place[0], label, *place[1:])] * weights[place]
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weights.sum()


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1, -100])
@pytest.mark.parametrize("inner", [(), (2, 3)])
def test_losses(run_node, reduction, weighted, ignored, inner):
    x = RANDOM.standard_normal((4, 5, *inner)).astype(np.float32)
    target = RANDOM.integers(0, 5, (4, *inner))
    if ignored is not None:
        target.reshape(-1)[:2] = ignored
    weight = RANDOM.uniform(0.5, 2, 5).astype(np.float32) if weighted else None
    attrs = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    inputs = [x, target] + ([weight] if weighted else [])
    (found,) = run_node("NegativeLogLikelihoodLoss", inputs, opset=13, **attrs)
    np.testing.assert_allclose(found, by_hand(x, target, weight, ignored, reduction), rtol=1e-5)
    loss, scores = run_node("SoftmaxCrossEntropyLoss", inputs, 2, opset=13, **attrs)
    wide = x.astype(np.float64)
    exact = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(scores, exact, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss, by_hand(exact, target, weight, ignored, reduction), rtol=1e-5)


def test_an_ignored_infinite_loss_is_zero(run_node):
    x = np.array([[-np.inf, 0], [-1, -2]], np.float32)
    weight = np.array([0, 1], np.float32)
    (found,) = run_node("NegativeLogLikelihoodLoss", [x, np.array([7, 1]), weight], opset=13, ignore_index=7)
    assert found == 2


def test_wrong_targets_are_rejected_or_clear(run_node):
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(UnsupportedError):
        run_node("SoftmaxCrossEntropyLoss", [x, np.zeros((3,), np.int64)], opset=13, reduction="median")


@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("target_type", [np.int32, np.int64])
def test_the_loss_of_a_target_of_no_class_is_nan(run_node, target_type, weighted, op_type):
    """Also of negative ones, which must not count from the last class."""
    x = RANDOM.standard_normal((5, 3)).astype(np.float32)
    target = np.array([-1, 0, 3, -100, 2], target_type)
    inputs = [x, target] + ([np.array([0.5, 1, 2], np.float32)] if weighted else [])
    for ignored in (None, -100):
        attrs = {} if ignored is None else {"ignore_index": ignored}
        for reduction in ("none", "sum", "mean"):
            (found,) = run_node(op_type, inputs, opset=13, reduction=reduction, **attrs)
            if reduction != "none":
                assert np.isnan(found)
                continue
            np.testing.assert_array_equal(np.isnan(found), [True, False, True, ignored is None, False])
            assert ignored is None or found[3] == 0


def test_a_mean_over_nothing_is_nan_as_the_standard_says(run_node):
    x = np.zeros((2, 3), np.float32)
    (found,) = run_node("SoftmaxCrossEntropyLoss", [x, np.array([5, 5])], opset=13, ignore_index=5)
    assert np.isnan(found)

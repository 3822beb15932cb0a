# SPDX-License-Identifier: Apache-2.0
"""Losses of labels that name no class: kernels and reference agree that they are nan; and negative_log_likelihood."""

import numpy as np
import pytest

RNG = np.random.default_rng(12)


def by_hand(scores, labels, ignored):
    """Minus the score of each label, one after another."""
    found = np.zeros(labels.shape)
    for place in np.ndindex(labels.shape):
        label = int(labels[place])
        if label == ignored:
            continue
        known = 0 <= label < scores.shape[1]
        found[place] = -scores[(place[0], label, *place[1:])] if known else np.nan
    return found


@pytest.mark.parametrize("labels_type", [np.int32, np.int64])
@pytest.mark.parametrize("attrs", [{}, {"ignore_index": -100}, {"ignore_index": 3}, {"ignore_index": 2**40}])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_labels_of_no_class(check_op, rest, attrs, labels_type):
    scores = RNG.standard_normal((7, 5, *rest))
    labels = RNG.integers(0, 5, (7, *rest)).astype(labels_type)
    labels[:6] = np.array([-1, 5, -100, 3, 2**30, -5]).reshape(6, *[1] * len(rest))
    ignored = attrs.get("ignore_index")
    losses = by_hand(scores, labels, ignored)
    assert np.isnan(losses).any()
    check_op("negative_log_likelihood", [scores, labels], [losses], rtol=1e-12, **attrs)
    total = np.log(np.exp(scores).sum(axis=1))
    crossed = np.where(labels == ignored, 0, losses + total)
    attrs = {**attrs, "label_smoothing": 0.0}
    check_op("softmax_cross_entropy", [scores, labels], [crossed, total], rtol=1e-12, **attrs)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_scores_that_are_ignored_may_be_infinite(check_op, dtype):
    scores = np.array([[-np.inf, 0], [-1, -2]], dtype)
    check_op("negative_log_likelihood", [scores, np.array([7, 1])], [[0, 2]], ignore_index=7)

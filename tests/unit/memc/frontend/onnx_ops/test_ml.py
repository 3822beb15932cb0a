# SPDX-License-Identifier: Apache-2.0
"""Importing TfIdfVectorizer, Binarizer, ArrayFeatureExtractor, TreeEnsemble."""

import numpy as np
import pytest
from onnx import numpy_helper

from memc.ir.errors import UnsupportedError

RANDOM = np.random.default_rng(6)
POOL = {
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("low, high, skips", [(1, 1, 0), (2, 2, 0), (1, 2, 0), (1, 2, 5)])
@pytest.mark.parametrize("shape", [(12,), (3, 8)])
def test_tf_idf(same_as_ort, mode, low, high, skips, shape):
    x = RANDOM.integers(1, 9, shape)
    attrs = dict(POOL, mode=mode, min_gram_length=low, max_gram_length=high, max_skip_count=skips)
    same_as_ort("TfIdfVectorizer", [x], opset=9, **attrs)
    same_as_ort("TfIdfVectorizer", [x], opset=9, weights=[0.5, 1, 2, 3, 4, 5, 6.5], **attrs)


def test_binarizer(run_node):
    (found,) = run_node("Binarizer", [np.array([1, 2, 3], np.float32)], domain="ai.onnx.ml", threshold=2.0)
    np.testing.assert_array_equal(found, [0, 0, 1])


def test_array_feature_extractor(run_node):
    x = RANDOM.standard_normal((2, 4)).astype(np.float32)
    (found,) = run_node("ArrayFeatureExtractor", [x, np.array([[3, 0, 3]])], domain="ai.onnx.ml")
    np.testing.assert_array_equal(found, x[:, [3, 0, 3]])


def tree_attributes(average=False):
    """Two trees over two features: x0 <= 1 ? (x1 in {4, 5} ? 10 : 20) : 30, and x1 > 2 ? 1 : 2 for another target."""
    tensor = numpy_helper.from_array
    return {
        "nodes_modes": tensor(np.array([0, 6, 3], np.uint8), "m"),
        "nodes_splits": tensor(np.array([1, 0, 2], np.float32), "s"),
        "membership_values": tensor(np.array([4, 5, np.nan], np.float32), "v"),
        "nodes_featureids": [0, 1, 1],
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "nodes_missing_value_tracks_true": [1, 0, 0],
        "leaf_targetids": [0, 0, 0, 1, 1],
        "leaf_weights": tensor(np.array([10, 20, 30, 1, 2], np.float32), "w"),
        "tree_roots": [0, 2],
        "n_targets": 2,
        "aggregate_function": 0 if average else 1,
    }


def test_tree_ensemble(run_node):
    x = np.array([[0, 4], [1, 1], [2, 5], [np.nan, 3], [0, np.nan]], np.float32)
    wanted = np.array([[10, 1], [20, 2], [30, 1], [20, 1], [20, 2]], np.float32)
    (found,) = run_node("TreeEnsemble", [x], domain="ai.onnx.ml", **tree_attributes())
    np.testing.assert_array_equal(found, wanted)
    (found,) = run_node("TreeEnsemble", [x], domain="ai.onnx.ml", **tree_attributes(average=True))
    np.testing.assert_array_equal(found, wanted / 2)


def test_links_that_form_a_cycle_are_rejected(run_node):
    attrs = {**tree_attributes(), "nodes_truenodeids": [0, 0, 3]}
    with pytest.raises(UnsupportedError, match="expected trees over 3 nodes"):
        run_node("TreeEnsemble", [np.zeros((1, 2), np.float32)], domain="ai.onnx.ml", **attrs)

# SPDX-License-Identifier: Apache-2.0
"""Unique of data of a run, against onnxruntime and, where that has no rule for nan, onnx's reference."""

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import memc
from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.evaluate import evaluate

RANDOM = np.random.default_rng(5)
RESULTS = "(%s[u] y, int64[u] indices, int64[n] inverse, int64[u] counts)"


def model(body, opset=20):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {body}')


def same(body, inputs, max_size=None):
    """Hold the results to those of onnx's reference."""
    wanted = ReferenceEvaluator(model(body)).run(None, inputs)
    found = list(evaluate(import_onnx(model(body), max_size=max_size), inputs).values())
    assert len(found) == len(wanted)
    for value, expected in zip(found, wanted):
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("sorted", [0, 1])
@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (30,), (3, 4), (2, 1, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64])
def test_of_elements(same_as_ort, shape, dtype, sorted):
    same_as_ort("Unique", [RANDOM.integers(-3, 3, shape).astype(dtype)], 4, sorted=sorted)


@pytest.mark.parametrize("sorted", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_of_slices(same_as_ort, axis, sorted):
    x = RANDOM.integers(0, 2, (4, 3, 5)).astype(np.float32)
    x[:, :, 1] = x[:, :, 3]
    same_as_ort("Unique", [x], 4, axis=axis, sorted=sorted)
    same_as_ort("Unique", [x[:, 0]], 4, axis=min(axis, 1), sorted=sorted)


def test_of_one_slice(same_as_ort):
    same_as_ort("Unique", [np.zeros((1, 3), np.float32)], 4, axis=0)
    same_as_ort("Unique", [np.zeros((5, 3), np.float32)], 4, axis=0)


@pytest.mark.parametrize("outputs", [["y"], ["y", "", "inverse"], ["y", "", "", "counts"], ["y", "indices"]])
def test_some_of_the_results(same_as_ort, outputs):
    same_as_ort("Unique", [np.array([3, 1, 3, 2, 1], np.int64)], outputs)


@pytest.mark.parametrize("sorted", [0, 1])
def test_nan_and_zeros(sorted):
    x = np.array([np.nan, 1, np.inf, -0.0, np.nan, 0.0, -np.inf, np.inf], np.float32)
    body = f"g (float[8] x) => {RESULTS % 'float'} {{ y, indices, inverse, counts = Unique<sorted = {sorted}>(x) }}"
    same(body, {"x": x})


def test_truth_values():
    body = f"g (bool[4] x) => {RESULTS % 'bool'} {{ y, indices, inverse, counts = Unique(x) }}"
    same(body, {"x": np.array([True, False, True, True])})
    same(body, {"x": np.ones(4, bool)})


@pytest.mark.parametrize("sorted", [0, 1])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_of_a_size_that_depends_on_data(sorted, share):
    """Values that are padding may be anything, the greatest of all included."""
    body = f"""g (float[9] x, bool[9] c) => {RESULTS % "float"} {{
        some = Compress<axis = 0>(x, c) y, indices, inverse, counts = Unique<sorted = {sorted}>(some) }}"""
    x = np.array([np.inf, 2, np.nan, 1, 2, np.nan, 1, -1, np.inf], np.float32)
    c = RANDOM.uniform(size=9) < share
    if c.any():  # The reference has no result for an empty tensor.
        same(body, {"x": x, "c": c})
    else:
        assert [v.shape for v in evaluate(import_onnx(model(body)), {"x": x, "c": c}).values()] == [(0,)] * 4


def test_rows_of_a_size_that_depends_on_data():
    body = f"""g (float[6,2] x, bool[6] c) => ({(RESULTS % "float")[1:-1].replace("float[u]", "float[u,2]")}) {{
        some = Compress<axis = 0>(x, c) y, indices, inverse, counts = Unique<axis = 0>(some) }}"""
    same(body, {"x": RANDOM.integers(0, 2, (6, 2)).astype(np.float32), "c": np.array([1, 1, 0, 1, 1, 0], bool)})


BODY = "g (float[6] x) => (float[u] y, int64[v] i) { y, i = Unique(x) }"


@pytest.mark.parametrize("opt_level", [0, 2, 3])
def test_compiled_with_room_for_three(opt_level):
    executable = memc.compile(model(BODY), max_size=3, opt_level=opt_level).load()
    found = executable(np.array([5, 2, 5, 2, 2, 9], np.float32))
    np.testing.assert_array_equal(found["y"], [2, 5, 9])
    np.testing.assert_array_equal(found["i"], [1, 0, 5])
    with pytest.raises(UsageError, match="expected at most 3, .* got 4 in this run; .* --max-size"):
        executable(np.array([5, 2, 5, 2, 1, 9], np.float32))


@pytest.mark.parametrize(
    "body, why",
    [
        (
            "g (float[2,65] x) => (float[u,65] y) { y = Unique<axis = 0>(x) }",
            "slices of more than 64 elements, got 65 along axis 0",
        ),
        ("g (float[0] x) => (float[u] y) { y = Unique(x) }", "an input without elements"),
        (
            "g (float[4,3] x, bool[3] c) => (float[u] y) { some = Compress<axis = 1>(x, c) y = Unique(some) }",
            "depends on data along axis 1, which over more than one axis this op does not take",
        ),
    ],
)
def test_what_is_refused(body, why):
    with pytest.raises(UnsupportedError, match=why):
        import_onnx(model(body))

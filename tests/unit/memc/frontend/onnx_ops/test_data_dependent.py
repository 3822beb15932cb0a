# SPDX-License-Identifier: Apache-2.0
"""Ops whose result's size depends on data, and what may follow them, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.passes.rewrite.decompose import decompose

RANDOM = np.random.default_rng(3)


def run_both(body, inputs, max_size=None):
    """The results of IR and of onnxruntime for a graph in onnx's notation."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {body}')
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    return list(evaluate(import_onnx(model, max_size=max_size), inputs).values()), wanted


def same(body, inputs, max_size=None):
    found, wanted = run_both(body, inputs, max_size)
    assert len(found) == len(wanted)
    for value, expected in zip(found, wanted):
        assert value.dtype == expected.dtype and value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def sparse(*shape):
    return np.where(RANDOM.uniform(size=shape) < 0.4, RANDOM.standard_normal(shape), 0).astype(np.float32)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 5), (1, 1), (4, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_nonzero(same_as_ort, shape, dtype):
    same_as_ort("NonZero", [sparse(*shape).astype(dtype)])


@pytest.mark.parametrize("value", [0, 1])
def test_nonzero_of_nothing_and_of_everything(same_as_ort, value):
    same_as_ort("NonZero", [np.full((2, 3), value, np.float32)])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress_at_run_time(same_as_ort, axis):
    x = RANDOM.standard_normal((3, 4)).astype(np.float32)
    attrs = {} if axis is None else {"axis": axis}
    same_as_ort("Compress", [x, np.array([False, True, True])], **attrs)


def boxes_and_scores(batches, classes, count):
    corners = RANDOM.uniform(0, 10, (batches, count, 2, 2)).astype(np.float32)
    boxes = np.concatenate([corners.min(axis=2), corners.max(axis=2)], axis=2)
    return boxes, RANDOM.uniform(size=(batches, classes, count)).astype(np.float32)


@pytest.mark.parametrize("most", [0, 3, 1000])
@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("known", [(), (2,), (2, 3, 4)])
@pytest.mark.parametrize("batches, classes, count", [(1, 1, 10), (2, 3, 17)])
def test_non_max_suppression(same_as_ort, batches, classes, count, known, center, most):
    boxes, scores = boxes_and_scores(batches, classes, count)
    given = [boxes, scores, np.array([most]), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    same_as_ort("NonMaxSuppression", given, known=known, center_point_box=center)


def test_non_max_suppression_with_equal_scores_and_no_thresholds(same_as_ort):
    boxes, scores = boxes_and_scores(1, 2, 30)
    same_as_ort("NonMaxSuppression", [boxes, np.round(scores * 3), np.array([20])], known=(2,))
    same_as_ort("NonMaxSuppression", [boxes, scores])


def test_counts_are_beside_the_results():
    module = import_onnx(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 20]> g (float[3,4] x) => (int64[2,n] y) {y = NonZero(x)}'
        ),
        max_size=5,
    )
    (extent,) = module.main.extents
    assert (extent.count, extent.most, extent.cuts) == (1, 5, ((0, 1),))
    assert module.main.result_names == ["y", "y.count"] and module.main.returns[0].type.shape == (2, 5)
    x = np.zeros((3, 4), np.float32)
    x[1, 2] = x[2, 3] = 1
    np.testing.assert_array_equal(evaluate(module, {"x": x})["y"], [[1, 2], [2, 3]])
    with pytest.raises(UsageError, match="y.count: expected at most 5, which there is room for, got 12"):
        evaluate(module, {"x": x + 1})


def test_what_overflows_on_the_way_is_told():
    body = """g (float[9] x) => (float[n] y) <int64[1] zero = {0}, int64[1] two = {2}> {
        at = NonZero(x) line = Squeeze(at, zero) few = Slice(line, zero, two) y = Gather(x, few) }"""
    x = np.array([0, 1, 2, 0, 3, 0, 4, 0, 0], np.float32)
    same(body, {"x": x})
    same(body, {"x": x}, max_size=4)
    with pytest.raises(UsageError, match="at.count: expected at most 3, which there is room for, got 4"):
        run_both(body, {"x": x}, max_size=3)


CHOSEN = "at = NonZero(mask) rows = Transpose(at) few = GatherND(x, rows)"
VECTOR = "float[p] y"
AFTERWARDS = {
    "elementwise": (VECTOR, "a = Mul(few, few) y = Add(a, half)"),
    "with its mask again": (
        VECTOR,
        "at2 = NonZero(mask) rows2 = Transpose(at2) again = GatherND(x, rows2) y = Sub(few, again)",
    ),
    "reductions": (
        "float[p] y, float z, float[r] w",
        "y = ReduceMax(few) z = ReduceSum<keepdims = 0>(few) w = ReduceMin(few, axis0)",
    ),
    "shapes": ("float[p,o] y", "a = Unsqueeze(few, axis0) b = Reshape(a, flat) y = Unsqueeze(b, axis1)"),
    "slices": (
        "float[p] y, float[q] z, float[r] w",
        "y = Slice(few, axis1, three) z = Slice(few, axis0, open) w = Slice(few, axis1, open)",
    ),
    "joined": (VECTOR, "y = Concat<axis = 0>(few, x_row, few, few)"),
    "columns": ("float[p,o] y", "a = Unsqueeze(few, axis1) b = Neg(a) y = Concat<axis = 1>(a, b)"),
    "along the other axis": (
        "float[p,o] y, float[p,q] z",
        "a = Unsqueeze(few, axis1) b = Exp(a) c = Concat<axis = 1>(a, b) y = Softmax<axis = 1>(c)"
        " z, w = Split<axis = 1, num_outputs = 2>(c)",
    ),
    "its own places": ("int64[1,p] y", "big = Greater(few, half) y = NonZero(big)"),
    "the one at a place": ("float[p] y, float[q] z", "y = Gather(few, axis0) z = Gather(few, last)"),
}
"""What follows, by a name: results and nodes."""


@pytest.mark.parametrize("name", AFTERWARDS)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_what_may_follow(name, share):
    results, text = AFTERWARDS[name]
    body = f"""g (float[4,5] x, bool[4,5] mask, int64[1] last) => ({results})
        <int64[1] axis0 = {{0}}, int64[1] axis1 = {{1}}, int64[1] three = {{3}}, int64[1] open = {{9223372036854775807}},
        int64[1] flat = {{-1}}, float[1] half = {{0.5}}, float[2] x_row = {{7, 8}}> {{ {CHOSEN} {text} }}"""
    mask = RANDOM.uniform(size=(4, 5)) <= share
    mask[0, :3] = True
    same(body, {"x": RANDOM.standard_normal((4, 5)).astype(np.float32), "mask": mask, "last": np.array([-1])})


@pytest.mark.parametrize(
    "text, why",
    [
        ("y = Hardmax<axis = 0>(few)", "along axis 0, which this op does not take"),
        ("y = Add(few, wide)", "beside a size of 20"),
        ("y = Slice(few, minus, open)", "counted from the end"),
        ("y = Reshape(few, full)", "to this shape"),
        ("y = MatMul(few, few)", "which with a vector this op does not take"),
        (
            "other = Not(mask) at2 = NonZero(other) row2 = Transpose(at2) few2 = GatherND(x, row2) y = Add(few, few2)",
            "another",
        ),
    ],
)
def test_what_is_refused(text, why):
    body = f"""g (float[4,5] x, bool[4,5] mask) => (float[n] y) <int64[1] minus = {{-2}}, int64 one = {{0}}, int64[1] full = {{20}},
        int64[1] open = {{9223372036854775807}}, float[20] wide = {{{", ".join(["1"] * 20)}}}> {{ {CHOSEN} {text} }}"""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {body}')
    with pytest.raises(
        UnsupportedError, match=f"^unsupported: node `y` .*input `few` has a size that depends on data .*{why}"
    ):
        import_onnx(model)


def test_training_is_refused():
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[3,4] x) => (int64[2,n] y) {y = NonZero(x)}'
    )
    with pytest.raises(
        UnsupportedError, match="node `y` .NonZero.: a size that depends on data, in a model to be trained"
    ):
        import_onnx(model, trainable=True)


def recomputed(rounded_apart, body, x, seed):
    """Raw results, with room, where all is recomputed between its readers, rounded apart; and the extents' numbers."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {body}')
    module = import_onnx(model)
    decompose(module, module.main, "none")
    return rounded_apart(module, {"x": x}, seed)


@pytest.mark.parametrize("seed", range(20))
def test_places_and_their_count_agree_whatever_is_recomputed(rounded_apart, seed):
    """Of half the elements the choice depends on the last bit."""
    x = np.where(RANDOM.uniform(size=40) < 0.5, 0.5, RANDOM.uniform(size=40)).astype(np.float32)
    body = """agraph (float[40] x) => (int64[1, n] at) {
      half = Constant <value_float = 0.5> ()
      more = Greater(x, half)
      at = NonZero(more)
    }"""
    at, count = recomputed(rounded_apart, body, x, seed)
    chosen = at[0, : int(count)]
    assert (np.diff(chosen) > 0).all() and not at[0, int(count) :].any() and chosen[-1] < 40
    surely = np.flatnonzero(x > 0.501)
    assert np.isin(surely, chosen).all() and not np.isin(np.flatnonzero(x < 0.499), chosen).any()


@pytest.mark.parametrize("sort", [0, 1])
@pytest.mark.parametrize("seed", range(10))
def test_groups_and_their_members_agree_whatever_is_recomputed(rounded_apart, seed, sort):
    """Equal elements may be told apart when they are recomputed; then all results say so."""
    x = RANDOM.integers(0, 6, 30).astype(np.float32) + 1
    body = f"""agraph (float[30] x) => (float[n] y, int64[n] first, int64[30] group, int64[n] size) {{
      y, first, group, size = Unique <sorted = {sort}> (x)
    }}"""
    y, first, group, size, *counts = recomputed(rounded_apart, body, x, seed)
    count = int(counts[0])
    assert size[:count].sum() == 30 and (size[:count] > 0).all()
    np.testing.assert_array_equal(np.bincount(group, minlength=count), size[:count])
    np.testing.assert_allclose(y[group], x, rtol=1e-5)
    np.testing.assert_array_equal(group[first[:count]], np.arange(count))

# SPDX-License-Identifier: Apache-2.0
"""Sums, products and searches along an axis whose size depends on data, and ops that treat it as samples, against onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import memc
from memc.frontend.onnx import import_onnx
from memc.ir.errors import UnsupportedError
from memc.ir.evaluate import evaluate

RANDOM = np.random.default_rng(11)

CASES = {
    "mean": ("float[1,4,3] y, float[p] z", "y = ReduceMean(few, axis0) z = ReduceMean<keepdims = 0>(few, others)"),
    "mean of everything": ("float y", "y = ReduceMean<keepdims = 0>(few)"),
    "mean of integers": ("int32[4,3] y", "ints = Cast<to = 6>(few) y = ReduceMean<keepdims = 0>(ints, axis0)"),
    "logarithms": (
        "float[4,3] y, float[4,3] z",
        "a = Abs(few) y = ReduceLogSum<keepdims = 0>(a, axis0) z = ReduceLogSumExp<keepdims = 0>(few, axis0)",
    ),
    "the greatest": (
        "int64[4,3] y, int64[1,4,3] z, int64[p,3] w",
        "y = ArgMax<axis = 0, keepdims = 0>(few) z = ArgMin<axis = 0>(few) w = ArgMax<axis = 1, keepdims = 0>(few)",
    ),
    "the last of equal ones": (
        "int64[4,3] y, int64[4,3] z",
        "low = Mul(few, zero) y = ArgMax<axis = 0, keepdims = 0, select_last_index = 1>(low)"
        " least = Sub(low, infinity) z = ArgMax<axis = 0, keepdims = 0, select_last_index = 1>(least)",
    ),
    "softmax": ("float[p,4,3] y, float[p,4,3] z", "y = Softmax<axis = 0>(few) z = LogSoftmax<axis = 0>(few)"),
    "running sums": (
        "float[p,4,3] y, float[p,4,3] z, float[p,4,3] w",
        "y = CumSum(few, first) z = CumSum<reverse = 1>(few, first) w = CumSum<exclusive = 1>(few, second)",
    ),
    "rows of a product": ("float[p,4,5] y", "y = MatMul(few, w35)"),
    "batches of products": ("float[p,4,4] y", "turned = Transpose<perm = [0, 2, 1]>(few) y = MatMul(few, turned)"),
    "what a product sums over": (
        "float[12,12] y",
        "flat = Reshape(few, rows) turned = Transpose(flat) odd = Div(flat, flat) y = MatMul(turned, odd)",
    ),
    "attention": (
        "float[p,12] y",
        "flat = Reshape(few, rows) turned = Transpose(flat) scores = MatMul(flat, turned)"
        " weights = Softmax<axis = -1>(scores) y = MatMul(weights, flat)",
    ),
    "linear layers": (
        "float[p,5] y, float[12,12] z",
        "flat = Reshape(few, rows) y = Gemm<transB = 1>(flat, w512, bias) z = Gemm<transA = 1, alpha = 0.5>(flat, flat)",
    ),
    "samples of a convolution": (
        "float[p,2,4,3] y, float[p,2,1,1] z",
        "image = Unsqueeze(few, axis1) y = Conv<pads = [1, 1, 1, 1]>(image, w33) z = GlobalAveragePool(y)",
    ),
    "rows of a norm": ("float[p,4,3] y", "y = LayerNormalization<axis = -1>(few, scale)"),
}
"""What follows, by a name: results and nodes."""

MODEL = """<ir_version: 10, opset_import: ["" : 20]> g (float[6,4,3] x, bool[6] mask) => (%s)
    <int64[1] axis0 = {0}, int64[1] axis1 = {1}, int64[2] others = {1, 2}, int64 first = {0}, int64 second = {1}, float zero = {0},
     int64[2] rows = {-1, 12}> { few = Compress<axis = 0>(x, mask) %s }"""

WEIGHTS = {
    "w35": (3, 5),
    "w45": (4, 5),
    "w512": (5, 12),
    "bias": (5,),
    "w33": (2, 1, 3, 3),
    "w6": (2, 6, 1),
    "scale": (3,),
}


def model(results, text):
    made = parser.parse_model(MODEL % (results, text))
    values = {name: np.random.default_rng(3).standard_normal(shape) for name, shape in WEIGHTS.items()}
    for name, array in {**values, "infinity": np.array(np.inf)}.items():
        made.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return made


def given(kept):
    mask = np.zeros(6, bool)
    mask[RANDOM.permutation(6)[:kept]] = True
    x = RANDOM.standard_normal((6, 4, 3)).astype(np.float32)
    x[~mask] = np.nan  # What is not chosen must not be seen.
    return {"x": x, "mask": mask}


def wanted(made, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"]).run(None, inputs)


def hold(found, expected):
    assert len(found) == len(expected)
    for value, other in zip(found, expected):
        assert value.dtype == other.dtype and value.shape == other.shape
        np.testing.assert_allclose(value, other, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kept", [1, 3, 6])
def test_evaluated(name, kept):
    made, inputs = model(*CASES[name]), given(kept)
    hold(list(evaluate(import_onnx(made), inputs).values()), wanted(made, inputs))


@pytest.mark.parametrize("name", CASES)
def test_compiled(name):
    made, inputs = model(*CASES[name]), given(3)
    executable = memc.compile(made, max_size=5).load()
    hold(list(executable.run_numpy(inputs).values()), wanted(made, inputs))


def test_mean_of_nothing():
    made = model(*CASES["mean of everything"])
    assert np.isnan(memc.compile(made).load().run_numpy(given(0))["y"])
    made = model(*CASES["mean of integers"])
    assert memc.compile(made).load().run_numpy(given(0))["y"].tolist() == np.zeros((4, 3)).tolist()


def test_regions():
    """Boxes that are padding point into no image."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[2,3,8,8] image, float[5,4] boxes, int64[5] of, bool[5] mask)
        => (float[p,3,2,2] y) { rois = Compress<axis = 0>(boxes, mask) at = Compress<axis = 0>(of, mask)
        y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(image, rois, at) }"""
    image = RANDOM.standard_normal((2, 3, 8, 8)).astype(np.float32)
    boxes = np.array([[0, 0, 4, 4], [1, 2, 6, 7], [np.nan] * 4, [2, 2, 5, 8], [0, 3, 7, 4]], np.float32)
    inputs = {"image": image, "boxes": boxes, "of": np.array([1, 0, 2**40, 1, 0])}
    inputs["mask"] = np.array([True, True, False, True, False])
    made = parser.parse_model(text)
    (found,) = memc.compile(made).load().run_numpy(inputs).values()
    np.testing.assert_allclose(found, wanted(made, inputs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "text, why",
    [
        ("wide = Cast<to = 7>(few) y = ReduceMean(wide, axis0)", "of integers of 64 bits"),
        ("turned = Transpose<perm = [1, 2, 0]>(few) y = MatMul(turned, w35)", "with another extent beside it"),
        ("image = Unsqueeze(few, axis0) y = Conv(image, w6)", "as anything but a number of samples"),
        ("y = LayerNormalization<axis = 0>(few, scale)", "along an axis that it normalizes"),
        ("flat = Reshape(few, rows) turned = Transpose(flat) y = Gemm(turned, w512)", "with another extent beside it"),
        ("flat = Reshape(few, rows) y = Gemm<transB = 1>(flat, w512, x)", "with another extent beside it"),
    ],
)
def test_what_is_refused(text, why):
    with pytest.raises(
        UnsupportedError, match=f"node `y` .* has a size that depends on data along axis ., which {why} this op"
    ):
        import_onnx(model("float[a,b,c] y", text))

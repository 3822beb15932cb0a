# SPDX-License-Identifier: Apache-2.0
"""Results that one rounding of a model's weights moves as far as memc's are from a reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from memc.ir.module import Module
from memc.measure import verification
from memc.measure.references import with_all_outputs
from memc.measure.sensitivity import _neighbours, moved_results
from memc.measure.tolerances import Tolerances

EIGHT = Tolerances("8-bit", 2e-2, 2e-3, norm=2e-2, steps=0.5)


def test_neighbours() -> None:
    array = np.array([1, -2, 0, np.inf, np.nan, 65504, 6e-8], np.float16)
    moved = _neighbours(array, np.random.default_rng(0))
    assert moved.dtype == array.dtype
    same = np.array([False, False, True, True, True, False, False])
    np.testing.assert_array_equal((moved == array) | np.isnan(moved), same | (moved == array))
    assert (moved[:2] != array[:2]).all() and moved[2] == 0 and moved[3] == np.inf and np.isnan(moved[4])
    assert np.abs(moved[:2].astype(float) - array[:2].astype(float)).max() <= 2**-9


def tie(nodes: str = "") -> bytes:
    """A sum that lies halfway between two integers for weights of one, and at either side for their neighbours."""
    made = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[64,8] x) => (float[64,1] y)'
        f" <float step = {{1}}, int8 zero = {{0}}> {{ {nodes} p = MatMul(x, w) q = QuantizeLinear(p, step, zero)"
        " y = DequantizeLinear(q, step, zero) }"
    )
    made.graph.initializer.append(numpy_helper.from_array(np.full((8, 1), 0.5, np.float32), "w"))
    return bytes(made.SerializeToString())


def test_moved_results_differ_at_ties() -> None:
    x = np.ones((64, 8), np.float32)
    x[1::2] = 1.125  # Sums of 4 and of 4.5.
    found = moved_results(tie(), {"x": x})
    assert len(found) == 4
    assert {round(float(y), 3) for moved in found for y in moved["y"][1::2, 0]} == {4.0, 5.0}
    assert {round(float(y), 3) for moved in found for y in moved["y"][::2, 0]} == {4.0}


def test_settings_stay() -> None:
    """A size that is off by one rounding would be another size."""
    made = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 19]> g (float[1,1,4] x) => (float[1,1,n] y) <float[3] scales = {1, 1, 2.0}>'
        ' { y = Resize<mode = "nearest">(x, , scales) }'
    )
    assert moved_results(made.SerializeToString(), {"x": np.ones((1, 1, 4), np.float32)}) == []


def references(moved: Any, **found: Any) -> verification._References:
    results = {name: value if isinstance(value, str) else {"y": value} for name, value in found.items()}
    made = verification._References("", Module([]), {}, {}, None, found=results)
    made.results("onnxruntime")
    made.moved = moved
    return made


@pytest.mark.parametrize("second", ["cannot run", np.ones(100, np.float32)])
def test_what_is_allowed(second: Any) -> None:
    expected = np.ones(100, np.float32)
    moved = [{"y": expected}, {"y": expected * np.float32(1.02)}]
    asked = references(moved, onnxruntime=expected, onnx=second)
    for error, matches in ((0.01, True), (0.035, True), (0.045, False), (0.5, False)):
        found = asked.judgement("y", expected * np.float32(1 + error), expected, EIGHT)
        assert found.difference.matches is matches, error
        assert ("one rounding of its weights moves it by 0.02" in found.note) is (error == 0.035)
    far = references([{"y": expected * 3}], onnxruntime=expected, onnx=second)
    assert not far.judgement("y", expected * np.float32(1.11), expected, EIGHT).difference.matches
    strict = Tolerances("f32", 1e-3, 1e-5)
    assert not asked.judgement("y", expected * np.float32(1.01), expected, strict).difference.matches


def test_results_of_8_bits() -> None:
    expected = np.zeros(100, np.uint8)
    asked = references([{"y": (np.arange(100) % 2).astype(np.uint8)}], onnxruntime=expected, onnx="cannot run")
    for step, matches in ((1, True), (3, False)):
        result = np.full(100, step, np.uint8)
        assert asked.judgement("y", result, expected, EIGHT).difference.matches is matches


def test_all_tensors_of_a_model_with_types_of_others(tmp_path: Any) -> None:
    """Quantizers leave the types of tensors behind that they have replaced."""
    made = onnx.load_model_from_string(tie())
    made.graph.value_info.append(helper.make_tensor_value_info("gone", onnx.TensorProto.FLOAT, [64, 1]))
    onnx.save(made, tmp_path / "m.onnx")
    marked = onnx.load_model_from_string(with_all_outputs(tmp_path / "m.onnx"))
    assert [output.name for output in marked.graph.output] == ["y", "p"]

# SPDX-License-Identifier: Apache-2.0
"""Open dims, whole shapes and inputs bound to constants."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
import pytest

from memc.frontend.onnx import import_onnx
from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.ir.evaluate import evaluate
from memc.ir.module import Module


def parse(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def relu(*dims: object) -> onnx.ModelProto:
    """A model of one Relu whose input has these dims: numbers, symbols, None for unknown, -1 as some exporters write."""
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(dims))
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=[onnx.helper.make_opsetid("", 17)]
    )


def input_shape(module: Module, name: str = "x") -> tuple[int, ...]:
    return next(p.type.shape for p in module.main.params if p.name == name)


def test_dim_is_bound_by_name() -> None:
    assert input_shape(import_onnx(relu("batch", 3), dims={"batch": 4})) == (4, 3)


def test_shape_is_bound_and_spreads_to_other_inputs() -> None:
    model = parse("g (float[n, 2] x, float[n, 1] z) => (float[n, 2] y) { y = Add(x, z) }")
    module = import_onnx(model, input_shapes={"x": [5, 2]})
    assert input_shape(module, "z") == (5, 1)


def test_leading_dim_becomes_one_with_a_notice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="memc"):
        module = import_onnx(relu("batch", 3))
    assert input_shape(module) == (1, 3)
    assert "`x`" in caplog.text and "using 1" in caplog.text


def test_other_open_dims_are_listed() -> None:
    model = parse(
        "g (float[n, s] x, float[n, 2, k] z) => (float[n, s] y, float[n, 2, k] w) { y = Relu(x) w = Relu(z) }"
    )
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(model, dims={"k": 3})
    message = str(caught.value)
    assert "x:[n,s]" in message and "z:[n,2,3]" in message
    assert "--dim n=N" in message and "--dim s=N" in message and "\n" not in message


@pytest.mark.parametrize("unknown", [None, -1, "?", "-1"])
def test_unknown_dims_need_a_shape(unknown: object) -> None:
    with pytest.raises(UnsupportedError, match=r"x:\[2,\?\].*--input-shapes"):
        import_onnx(relu(2, unknown))
    assert input_shape(import_onnx(relu(2, unknown), input_shapes={"x": (2, 7)})) == (2, 7)


def test_unknown_rank_needs_a_shape() -> None:
    model = relu(1)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match="unknown rank"):
        import_onnx(model)
    assert input_shape(import_onnx(model, input_shapes={"x": (2, 3)})) == (2, 3)


def test_size_zero_is_a_size_unless_given_otherwise() -> None:
    assert input_shape(import_onnx(relu(0, 3))) == (0, 3)
    assert input_shape(import_onnx(relu(0, 3), input_shapes={"x": (2, 3)})) == (2, 3)
    assert input_shape(import_onnx(relu("n", 3), dims={"n": 0})) == (0, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"nonsense": 2}}, "no `nonsense`; there are: `n`"),
        ({"dims": {"n": -2}}, "at least 0"),
        ({"input_shapes": {"q": (1, 3)}}, "no `q`; there are: `x`"),
        ({"input_shapes": {"x": (1, 3, 1)}}, "ranks differ"),
        ({"input_shapes": {"x": (1, 4)}}, r"expected shape \[n,3\], got \[1, 4\]: 3 is fixed"),
        ({"input_shapes": {"x": (2, 3)}, "dims": {"n": 4}}, "`n` is already 4"),
        ({"bind": {"q": 1}}, "no `q`"),
        ({"bind": {"x": np.zeros((2, 4))}}, "is fixed"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        import_onnx(relu("n", 3), **options)


def test_bound_scalar_fills_the_input_and_array_gives_the_shape() -> None:
    model = parse(
        "g (float[2, 3] x, float[2, 3] z, float[n] v) => (float[2, 3] y, float[n] w) { y = Add(x, z) w = Neg(v) }"
    )
    module = import_onnx(model, bind={"z": 2, "v": [1.0, 2.0]})
    assert [p.name for p in module.main.params if p.role is not None and p.role.value == "input"] == ["x"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = evaluate(module, {"x": x})
    np.testing.assert_array_equal(results["y"], x + 2)
    np.testing.assert_array_equal(results["w"], np.array([-1, -2], np.float32))


def test_binding_must_be_exact_for_integers() -> None:
    model = parse("g (int64 n, float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(UsageError, match="i64 cannot hold"):
        import_onnx(model, bind={"n": 1.5})


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 20), (0, 1 << 40, 1 << 20)])
def test_huge_input_is_refused(shape: tuple[int, ...]) -> None:
    """Of one without elements numpy would have no array either."""
    with pytest.raises(InvalidError, match="larger than 1 TiB"):
        import_onnx(relu(*shape))


def test_string_and_sequence_inputs_are_unsupported() -> None:
    model = relu(2)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(UnsupportedError, match="graph input `x`: element type string"):
        import_onnx(model)
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    model.graph.input[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(tensor))
    with pytest.raises(UnsupportedError, match="expected a dense tensor, got sequence"):
        import_onnx(model)

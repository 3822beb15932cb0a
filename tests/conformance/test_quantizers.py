# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's quantizer and float16 converter write for a small network, against onnxruntime."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16

from memc.measure.verification import verify

C = 8
SHAPE = (3, 11, 12)


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """memc's warnings reach `caplog`, whatever commands that ran before have set up."""
    monkeypatch.setattr(logging.getLogger("memc"), "propagate", True)
    caplog.set_level(logging.WARNING, "memc")


class Samples(CalibrationDataReader):
    """A few random images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.left: Iterator[dict[str, Any]] = iter(
            [{"x": rng.normal(size=(2, *SHAPE)).astype(np.float32)} for _ in range(3)]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.left, None)


def network() -> onnx.ModelProto:
    """Convolutions with what follows them: plain, with batch norm, depthwise, transposed; a residual and a classifier."""
    rng = np.random.default_rng(0)

    def data(*shape: int) -> Any:
        return (rng.normal(size=shape) * 0.3).astype(np.float32)

    weights = {
        **{"w0": data(C, 3, 3, 3), "w1": data(C, C, 3, 3), "w2": data(C, 1, 3, 3), "wt": data(C, 4, 2, 2)},
        **{name: data(C) for name in ("b0", "b1", "b2", "g", "be", "mu")},
        **{"va": np.abs(data(C)) + np.float32(0.5), "lo": np.float32(0), "hi": np.float32(6)},
        **{"bt": data(4), "s": data(4, 1, 1), "wg": data(5, 4), "bg": data(5)},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p0", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c1", "g", "be", "mu", "va"], ["n1"]),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], group=C, pads=[1] * 4),
        helper.make_node("Clip", ["c2", "lo", "hi"], ["k2"]),
        helper.make_node("Add", ["k2", "r1"], ["a2"]),
        helper.make_node("ConvTranspose", ["a2", "wt", "bt"], ["t"], strides=[2, 2]),
        helper.make_node("PRelu", ["t", "s"], ["q"]),
        helper.make_node("GlobalAveragePool", ["q"], ["gp"]),
        helper.make_node("Flatten", ["gp"], ["fl"]),
        helper.make_node("Gemm", ["fl", "wg", "bg"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *SHAPE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cnn") / "cnn.onnx"
    onnx.save(network(), path)
    return path


def check(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    for kernels in ("auto", "generated"):
        found = verify(path, dims={"batch": 3}, kernels=kernels)
        assert found.passed, found.differences
    assert not [record for record in caplog.records if record.name == "memc"]


@pytest.mark.parametrize("each", [True, False], ids=["by channel", "by tensor"])
@pytest.mark.parametrize("format", list(QuantFormat), ids=lambda format: format.name)
@pytest.mark.parametrize("type", [QuantType.QUInt8, QuantType.QInt8], ids=lambda type: type.name)
def test_quantized(plain: Path, tmp_path: Path, caplog: Any, format: Any, each: bool, type: Any) -> None:
    path = tmp_path / "quantized.onnx"
    # test_quantized_networks.py has the other ops that have a form with quantized operands.
    ops = ["Conv", "ConvTranspose", "Gemm", "MaxPool"] if format is QuantFormat.QDQ else ["Conv"]
    kinds = {"activation_type": type, "weight_type": QuantType.QInt8, "op_types_to_quantize": ops}
    quantize_static(str(plain), str(path), Samples(), quant_format=format, per_channel=each, **kinds)
    check(path, caplog)


@pytest.mark.parametrize(
    "options", [{}, {"keep_io_types": True}, {"keep_io_types": True, "op_block_list": ["PRelu", "BatchNormalization"]}]
)
def test_float16(plain: Path, tmp_path: Path, caplog: Any, options: dict[str, Any]) -> None:
    path = tmp_path / "half.onnx"
    onnx.save(convert_float_to_float16(onnx.load(plain), **options), path)
    check(path, caplog)

# SPDX-License-Identifier: Apache-2.0
"""Files, external and sparse data, and what is not a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from memc.frontend.onnx import import_onnx
from memc.ir.core import Role
from memc.ir.errors import InvalidError
from memc.ir.evaluate import evaluate

SIZE = 64


def external_model(offset: int = 0, location: str = "model.weights", length: int | None = 4 * SIZE) -> onnx.ModelProto:
    """y = x + w with w stored outside."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[SIZE], data_location=TensorProto.EXTERNAL)
    w.external_data.add(key="location", value=location)
    w.external_data.add(key="offset", value=str(offset))
    if length is not None:
        w.external_data.add(key="length", value=str(length))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [SIZE])],
        initializer=[w],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def write(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_mapped_not_read(tmp_path: Path) -> None:
    data = np.arange(SIZE, dtype=np.float32)
    (tmp_path / "model.weights").write_bytes(b"1234" + data.tobytes())
    module = import_onnx(write(tmp_path, external_model(offset=4)))
    weight = module.weights["w"]
    base = weight
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base.base, __import__("mmap").mmap)
    np.testing.assert_array_equal(evaluate(module, {"x": data})["y"], 2 * data)


def test_external_data_beyond_two_gigabytes(tmp_path: Path) -> None:
    offset = 3 << 30
    with open(tmp_path / "model.weights", "wb") as file:  # a sparse file: it takes no room
        file.seek(offset)
        file.write(np.full(SIZE, 5, np.float32).tobytes())
    module = import_onnx(str(write(tmp_path, external_model(offset))))
    assert evaluate(module, {"x": np.zeros(SIZE, np.float32)})["y"][-1] == 5


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (external_model(location="absent.bin"), "absent.bin` does not exist"),
        (external_model(location="../model.weights"), "not inside the model's folder"),
        (external_model(location="/etc/hostname"), "not inside the model's folder"),
        (external_model(offset=1 << 20), "is the file truncated"),
        (external_model(offset=-8), "which has"),
        (external_model(length=12), "got length 12"),
    ],
)
def test_bad_external_data(tmp_path: Path, model: onnx.ModelProto, message: str) -> None:
    (tmp_path / "model.weights").write_bytes(bytes(4 * SIZE))
    with pytest.raises(InvalidError, match=message):
        import_onnx(write(tmp_path, model))


def test_external_data_needs_a_path() -> None:
    with pytest.raises(InvalidError, match="import the model by its path"):
        import_onnx(external_model())


@pytest.mark.parametrize("content", [b"", b"this is text\n", b"\x08", b"\x00" * 100, b"{}"])
def test_not_a_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidError, match="model.onnx`: not an ONNX model") as caught:
        import_onnx(path)
    assert "\n" not in str(caught.value)


def test_truncated_file(tmp_path: Path) -> None:
    weights = np.zeros((16, 16), np.float32)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16])],
            initializer=[onnx.numpy_helper.from_array(weights, "w")],
        )
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString()[:-200])
    with pytest.raises(InvalidError, match="truncated"):
        import_onnx(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no such file"):
        import_onnx(tmp_path / "nothing.onnx")


@pytest.mark.parametrize("linear", [True, False])
def test_sparse_initializer(linear: bool) -> None:
    indices = [1, 5] if linear else [0, 1, 1, 2]
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", TensorProto.FLOAT, [2], [3.0, 4.0]),
        helper.make_tensor("i", TensorProto.INT64, [2] if linear else [2, 2], indices),
        [2, 3],
    )
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        sparse_initializer=[sparse],
    )
    module = import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    got = evaluate(module, {"x": np.zeros((2, 3), np.float32)})["y"]
    np.testing.assert_array_equal(got, [[0, 3, 0], [0, 0, 4]])


def test_initializers_listed_among_the_inputs_are_weights() -> None:
    weight = np.ones((4, 8), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Mul", ["t", "w"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 8]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])],
        initializer=[onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(weight, "unused")],
    )
    module = import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert [(p.name, p.role) for p in module.main.params] == [("x", Role.INPUT), ("w", Role.WEIGHT)]
    assert list(module.weights) == ["w"]


def test_stored_data_that_does_not_fit_its_shape() -> None:
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 20, 1 << 20], raw_data=b"1234")
    model = external_model()
    model.graph.initializer[0].CopyFrom(w)
    with pytest.raises(InvalidError, match="tensor `w`: shape .* larger than 1 TiB"):
        import_onnx(model)
    model.graph.initializer[0].dims[:] = [SIZE]
    with pytest.raises(InvalidError, match="tensor `w`: data do not fit"):
        import_onnx(model)

# SPDX-License-Identifier: Apache-2.0
"""An ONNX model with all floats in double precision: where f32 results may differ, those of f64 show who is right."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE


def write_double(path: Path, folder: Path) -> Path:
    """Write the f32 model at `path` to `folder`, in double precision with its weights beside it; returns the file."""
    model = onnx.load(str(path))
    graph = model.graph
    for tensor in graph.initializer:
        _widen(tensor)
    for node in graph.node:
        _widen_node(node)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == FLOAT:
            info.type.tensor_type.elem_type = DOUBLE
    made = folder / path.name
    onnx.save(model, str(made), save_as_external_data=True, location=f"{path.stem}.weights")
    return made


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type == FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float64"), tensor.name))


def _widen_node(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen(attribute.t)
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
            attribute.i = DOUBLE
    if node.op_type == "LayerNormalization":
        # The type that it computes in is f32 unless stated.
        kept = [a for a in node.attribute if a.name != "stash_type"]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("stash_type", DOUBLE)])

# SPDX-License-Identifier: Apache-2.0
"""The ops and tensor types of an ONNX model, for estimates: without the weights, whose data may be absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.ir.files import read_bytes
from memc.ir.messages import nearest, shown


@dataclass(frozen=True)
class TensorShape:
    """Dims, and bytes of an element."""

    dims: tuple[int, ...]
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Of all elements."""
        return prod(self.dims) * self.itemsize


@dataclass(frozen=True)
class Node:
    """One op of the model, in its own order."""

    op: str
    name: str
    inputs: tuple[str, ...]
    """Empty text for an input that is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class OnnxGraph:
    """A model whose every tensor has a known shape."""

    nodes: tuple[Node, ...]
    shapes: Mapping[str, TensorShape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    """Stored tensors of floating-point type that ops read, in the order in which they first do."""


def read_onnx(path: str | Path, dims: Mapping[str, int]) -> OnnxGraph:
    """The graph of a model with its open dimensions bound.

    Raises UsageError for dims that the model lacks or leaves open, InvalidError for a file that is no model, UnsupportedError where
    a shape stays unknown.
    """
    import onnx  # With a model alone: recordings do without.

    raw = read_bytes(path)
    try:
        model = onnx.load_from_string(raw)
        _bind(path, model, dims)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except (UsageError, InvalidError):
        raise
    except Exception as error:  # protobuf's, and onnx's own of many kinds.
        what = " ".join(str(error).split())[:200]
        raise InvalidError(f"{path}: expected an ONNX model, got: {what or type(error).__name__}") from None
    return _graph(path, model.graph)


def _bind(path: str | Path, model: Any, dims: Mapping[str, int]) -> None:
    initialized = {tensor.name for tensor in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in initialized]
    open_dims: list[str] = []
    for each in inputs:
        for dim in each.type.tensor_type.shape.dim:
            name = dim.dim_param
            if dim.HasField("dim_value"):
                continue
            if name not in dims:
                raise UsageError(
                    f"{path}: dims: `{each.name}` has an open dimension {shown(name)}; bind it with --dim {name}=N"
                )
            open_dims.append(name)
            dim.dim_value = dims[name]
    for name in dims:
        if name not in open_dims:
            near = nearest(name, open_dims) or f"; there are: {', '.join(sorted(set(open_dims))) or 'none'}"
            raise UsageError(f"{path}: dims: the model has no open dimension {shown(name)}{near}")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def _graph(path: str | Path, graph: Any) -> OnnxGraph:
    import onnx

    if not graph.output:
        raise InvalidError(f"{path}: expected a model with an output, got none")

    def itemsize(name: str, number: int) -> int:
        try:
            return int(onnx.helper.tensor_dtype_to_np_dtype(number).itemsize)
        except KeyError:
            raise InvalidError(f"{path}: {name}: expected a type of elements that ONNX has, got {number}") from None

    def shape_of(info: Any) -> TensorShape | None:
        tensor = info.type.tensor_type
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            return None
        sizes = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
        return TensorShape(sizes, itemsize(info.name, tensor.elem_type))

    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        name: TensorShape(tuple(tensor.dims), itemsize(name, tensor.data_type)) for name, tensor in stored.items()
    }
    floats = {name for name, tensor in stored.items() if tensor.data_type in (1, 10, 11, 16)}
    for info in (*graph.input, *graph.value_info, *graph.output):
        found = shape_of(info)
        if found is not None:
            shapes.setdefault(info.name, found)
    nodes = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in stored:  # The exporter stores equal tensors once.
            shapes[node.output[0]] = shapes[node.input[0]]
            stored[node.output[0]] = stored[node.input[0]]
            floats |= {node.output[0]} if node.input[0] in floats else set()
            continue
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        nodes.append(Node(node.op_type, node.name, tuple(node.input), tuple(node.output), attributes))
    inputs = tuple(each.name for each in graph.input if each.name not in stored)
    read: list[str] = []
    for node in nodes:
        for name in (*node.inputs, *node.outputs):
            if name and name not in shapes and node.op not in ("Constant",):
                raise UnsupportedError(f"{path}: node `{node.name}` ({node.op}): the shape of `{name}` is not known")
        read += [name for name in node.inputs if name in floats]
    return OnnxGraph(tuple(nodes), shapes, inputs, tuple(o.name for o in graph.output), tuple(dict.fromkeys(read)))


def spatial(attributes: Mapping[str, Any], name: str, rank: int, default: int) -> tuple[int, ...]:
    """A list attribute of a convolution, of `rank` numbers."""
    values: Sequence[int] = attributes.get(name) or [default] * rank
    return tuple(int(value) for value in values)

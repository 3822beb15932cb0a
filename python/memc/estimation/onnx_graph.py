# SPDX-License-Identifier: Apache-2.0
"""The ops and tensor types of an ONNX model, for estimates: without the weights, whose data may be absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from memc.ir.errors import InvalidError, UnsupportedError, UsageError
from memc.ir.files import read_bytes
from memc.ir.messages import nearest, shown

from .host_values import MOST, Array, dims_of, value_of

FLOATS = (1, 10, 11, 16)
"""ONNX's numbers of floating-point types of tensors."""


@dataclass(frozen=True)
class TensorShape:
    """Dims, and bytes of an element."""

    dims: tuple[int, ...]
    itemsize: int
    floating: bool = True

    @cached_property
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
    call: str = ""
    """Of PyTorch's op that the node is of, as its newer exporter says; empty if it does not."""
    scopes: tuple[str, ...] = ()
    """The modules that the node is in, outermost first."""


@dataclass(frozen=True)
class OnnxGraph:
    """A model whose every tensor has a known shape."""

    nodes: tuple[Node, ...]
    shapes: Mapping[str, TensorShape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    """Stored tensors of floating-point type that ops read, in the order in which they first do; in PyTorch's ops, in the model's."""
    buffers: tuple[str, ...] = ()
    """Other stored tensors that ops on the device read."""
    scalars: Mapping[str, Array] = field(default_factory=dict)
    """Numbers and shapes, which the host knows and hands to ops."""
    stored: tuple[str, ...] = ()
    """All stored tensors, in the file's order."""


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
    if not model.graph.output:
        raise InvalidError(f"{path}: expected a model with an output, got none")
    return _Reader(path, model.graph).read()


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


class _Reader:
    """Makes the graph, node by node: shapes that onnx could not tell are found from what is known of values on the host."""

    def __init__(self, path: str | Path, graph: Any) -> None:
        import onnx

        self.path, self.graph, self.onnx = path, graph, onnx
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.order = tuple(self.stored)
        self.shapes: dict[str, TensorShape] = {}
        self.types: dict[str, int] = {}
        self.values: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.scopes: dict[str, tuple[str, ...]] = {}
        for name, tensor in self.stored.items():
            self.types[name] = tensor.data_type
            self.shapes[name] = self._shape(name, tuple(tensor.dims))
            if prod(tensor.dims) <= MOST and (tensor.data_type not in FLOATS or not tensor.dims):
                self._know(name, tensor)
        for info in (*graph.input, *graph.value_info, *graph.output):
            self._declare(info)

    def _shape(self, name: str, dims: tuple[int, ...]) -> TensorShape:
        number = self.types[name]
        try:
            itemsize = int(self.onnx.helper.tensor_dtype_to_np_dtype(number).itemsize)
        except KeyError:
            raise InvalidError(
                f"{self.path}: {name}: expected a type of elements that ONNX has, got {number}"
            ) from None
        return TensorShape(dims, itemsize, number in FLOATS)

    def _know(self, name: str, tensor: Any) -> None:
        if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
            return
        self.values[name] = self.onnx.numpy_helper.to_array(tensor)

    def _declare(self, info: Any) -> None:
        tensor = info.type.tensor_type
        if not tensor.elem_type:
            return
        self.types.setdefault(info.name, tensor.elem_type)
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            dims = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
            self.shapes.setdefault(info.name, self._shape(info.name, dims))

    def read(self) -> OnnxGraph:
        """All of it."""
        for node in self.graph.node:
            self._read(node)
        given = tuple(each.name for each in self.graph.input if each.name not in self.stored)
        read = dict.fromkeys(name for node in self.nodes for name in node.inputs if name in self.stored)
        floats = tuple(name for name in read if self.shapes[name].floating and name not in self.values)
        rows = {name for name, value in self.values.items() if value.dtype.kind == "f" and value.size > 1}
        known = {name: value for name, value in self.values.items() if name not in rows}
        used = {name for node in self.nodes for name in node.inputs}
        buffers = (*(name for name in read if name not in floats and name not in known), *sorted(rows & used - {*read}))
        outputs = tuple(each.name for each in self.graph.output)
        return OnnxGraph(tuple(self.nodes), self.shapes, given, outputs, floats, buffers, known, self.order)

    def _read(self, node: Any) -> None:
        if node.op_type == "Identity" and node.input[0] in self.stored:  # The exporter stores equal tensors once.
            name = node.output[0]
            self.stored[name], self.types[name] = self.stored[node.input[0]], self.types[node.input[0]]
            self.shapes[name] = self.shapes[node.input[0]]
            if node.input[0] in self.values:
                self.values[name] = self.values[node.input[0]]
            return
        attributes = {each.name: self.onnx.helper.get_attribute_value(each) for each in node.attribute}
        attributes["outputs"] = len(node.output)
        if self._on_host(node, attributes):
            return
        self._infer(node, attributes)
        metadata = {each.key: each.value for each in node.metadata_props}
        call = metadata.get("pkg.torch.onnx.fx_node", "")
        scopes = _scopes(node.name, metadata.get("pkg.torch.onnx.name_scopes", ""))
        if not scopes and not node.name.startswith("/"):  # One that the exporter's optimizer has made of others.
            scopes = next((self.scopes[name] for name in node.input if name in self.scopes), ())
        self.scopes.update(dict.fromkeys(node.output, scopes))
        self.nodes.append(
            Node(node.op_type, node.name, tuple(node.input), tuple(node.output), attributes, call, scopes)
        )

    def _on_host(self, node: Any, attributes: dict[str, Any]) -> bool:
        """Whether the node is arithmetic on shapes or a number, whose value is then known."""
        name = node.output[0] if node.output else ""
        found: Array | None = None
        if node.op_type == "Constant":
            found = self._constant(attributes)
        elif node.op_type in ("Shape", "Size") and node.input[0] in self.shapes:
            dims = self.shapes[node.input[0]].dims
            start, end = attributes.get("start", 0), attributes.get("end", len(dims))
            found = np.array(dims[start:end] if node.op_type == "Shape" else prod(dims), np.int64)
        elif all(each in self.values for each in node.input if each):
            if node.op_type == "ConstantOfShape" and "value" in attributes:
                attributes["fill"] = self.onnx.numpy_helper.to_array(attributes["value"]).reshape(-1)[0]
            found = value_of(node.op_type, [self.values[each] for each in node.input if each], attributes)
        if found is None or found.size > MOST:
            return False
        self.values[name] = found
        self.types[name] = int(self.onnx.helper.np_dtype_to_tensor_dtype(found.dtype))
        self.shapes[name] = self._shape(name, tuple(found.shape))
        return True

    def _constant(self, attributes: Mapping[str, Any]) -> Array | None:
        if "value" in attributes:
            return np.asarray(self.onnx.numpy_helper.to_array(attributes["value"]))
        for name in ("value_int", "value_ints"):
            if name in attributes:
                return np.array(attributes[name], np.int64)
        for name in ("value_float", "value_floats"):
            if name in attributes:
                return np.array(attributes[name], np.float32)
        return None

    def _infer(self, node: Any, attributes: Mapping[str, Any]) -> None:
        unknown = [name for name in (*node.input, *node.output) if name and name not in self.shapes]
        if unknown and all(name in self.shapes for name in node.input if name):
            given = [name for name in node.input if name]
            found = dims_of(
                node.op_type,
                [self.shapes[name].dims for name in given],
                [self.values.get(name) for name in given],
                attributes,
            )
            for name, dims in zip(node.output, found or ()):
                if name and name not in self.shapes:
                    self.types.setdefault(name, self.types[_typed(node.op_type, given)])
                    self.shapes[name] = self._shape(name, dims)
        for name in (*node.input, *node.output):
            if name and name not in self.shapes:
                raise UnsupportedError(
                    f"{self.path}: node `{node.name}` ({node.op_type}): the shape of `{name}` is not known"
                )


def _typed(op: str, inputs: Sequence[str]) -> str:
    """The operand whose type the result has."""
    return inputs[1] if op == "Where" else inputs[0]


def _scopes(name: str, metadata: str) -> tuple[str, ...]:
    """The modules that a node is in, as PyTorch's exporters name it: /layer1/layer1.0/conv1/Conv, or in the metadata
    ['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d']."""
    if metadata:
        return tuple(part.strip(" '\"") for part in metadata.strip("[]").split(","))[1:-1]
    return tuple(name.split("/")[1:-1]) if name.startswith("/") else ()


def spatial(attributes: Mapping[str, Any], name: str, rank: int, default: int) -> tuple[int, ...]:
    """A list attribute of a convolution, of `rank` numbers."""
    values: Sequence[int] = attributes.get(name) or [default] * rank
    return tuple(int(value) for value in values)

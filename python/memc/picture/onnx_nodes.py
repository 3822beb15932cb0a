# SPDX-License-Identifier: Apache-2.0
"""Nodes of an ONNX model: the lines of source that exporters say they come from, and what plans made of them as metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from memc.ir.core import Function, Op
from memc.ir.errors import InvalidError
from memc.ir.liveness import space_of
from memc.ir.module import Module

from .from_module import op_name
from .picture import PlacedTensor, PlanPicture

PREFIX = "memc."
"""Of the keys that `annotated` writes."""

STACK = "pkg.torch.onnx.stack_trace"
"""The metadata of nodes in which PyTorch's exporter writes the call stack, innermost last."""

_FRAME = re.compile(r'File "([^"]*)", line (\d+)')


def node_name(node: onnx.NodeProto) -> str:
    """What ops call the node that they come from."""
    return node.name or next((output for output in node.output if output), "")


def source_lines(path: str | Path) -> dict[str, str]:
    """Of nodes by name: `file.py:line` of the innermost call outside PyTorch, where the exporter says it. Empty for a file that is no
    model."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # Which the compiler tells of.
        return {}
    found: dict[str, str] = {}
    for node in _nodes(model.graph):
        stack = next((entry.value for entry in node.metadata_props if entry.key == STACK), "")
        frames = _FRAME.findall(stack)
        own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
        if own:
            file, line = own[-1]
            found[node_name(node)] = f"{Path(file).name}:{line}"
    return found


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of branches and loops too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def annotated(path: str | Path, module: Module, picture: PlanPicture) -> onnx.ModelProto:
    """An ONNX model whose nodes say in their metadata, which Netron shows, what a plan of it made of them: `memc.ops`, and of the values
    that these write `memc.lifetimes`, `memc.addresses` and `memc.decisions`. External data stays where it is.

    Raises InvalidError if the file cannot be read.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # Of protobuf, or of the file system.
        raise InvalidError(f"{path}: cannot be read as an ONNX model: {' '.join(str(error).split())[:200]}") from None
    tensors = {(picture.spaces[tensor.space].name, tensor.name): tensor for tensor in picture.tensors}
    by_node: dict[str, list[tuple[int, Op]]] = {}
    for step, op in enumerate(module.main.ops):
        if op.location:
            by_node.setdefault(op.location, []).append((step, op))
    for node in _nodes(model.graph):
        kept = [entry for entry in node.metadata_props if not entry.key.startswith(PREFIX)]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for key, value in _metadata(by_node.get(node_name(node), []), module.main, tensors).items():
            node.metadata_props.add(key=f"{PREFIX}{key}", value=value)
    return model


def _metadata(
    ops: Sequence[tuple[int, Op]], function: Function, tensors: Mapping[tuple[str, str], PlacedTensor]
) -> dict[str, str]:
    if not ops:
        return {"ops": "none: folded, or part of another node's kernel"}
    lifetimes, addresses, decisions = [], [], []
    for _, op in ops:
        for value in op.results:
            space = space_of(function, value)
            tensor = tensors.get((space, value.root.name))
            name = f"%{value.name}"
            if tensor is None:
                addresses.append(f"{name}: {space}")
                continue
            lifetimes += [f"{name}: ops {lower} to {upper - 1}" for lower, upper in tensor.lives]
            at = tensor.offset + value.offset_in_root
            addresses.append(f"{name}: {space}[{at}], {value.type.nbytes} bytes")
            decisions.append(f"{name}: {tensor.decision}" + (f" ({tensor.reason})" if tensor.reason else ""))
    found = {
        "ops": "; ".join(f"{step} {op_name(op)}" for step, op in ops),
        "lifetimes": "; ".join(lifetimes),
        "addresses": "; ".join(addresses),
        "decisions": "; ".join(decisions),
    }
    return {key: value for key, value in found.items() if value}

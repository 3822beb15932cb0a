# SPDX-License-Identifier: Apache-2.0
"""Modules whose activations are not kept, but recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from memc.ir.errors import UsageError
from memc.ir.messages import shown

from .onnx_graph import Node, OnnxGraph


@dataclass(frozen=True)
class Segment:
    """The nodes of a module, from `first` to `last`."""

    first: int
    last: int
    inputs: tuple[str, ...]
    """Tensors that it reads of others, without stored ones."""
    outputs: tuple[str, ...]
    """Tensors that others read of it."""
    inside: tuple[str, ...]
    """All that its nodes make."""


def segments(source: str, graph: OnnxGraph, pattern: str) -> Mapping[int, Segment]:
    """By first node: the outermost modules whose name matches, such as `*.encoder.layer.*`. Raises UsageError if there is none."""
    runs: list[tuple[str, int, int]] = []
    for at, node in enumerate(graph.nodes):
        name = _module(node, pattern)
        if name is None:
            continue
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1], at)
        else:
            runs.append((name, at, at))
    if not runs:
        names = sorted({_names(node)[-1] for node in graph.nodes if node.scopes}, key=len)
        there = f"; there are such as {', '.join(names[:4])}" if names else "; the model names no modules"
        raise UsageError(f"{source}: checkpoint: expected a pattern of modules' names, got {shown(pattern)}{there}")
    return {first: _segment(graph, first, last) for _, first, last in runs}


def _names(node: Node) -> list[str]:
    """Full names of the modules that the node is in, outermost first."""
    names: list[str] = []
    for scope in node.scopes:
        whole = scope if names and scope.startswith(f"{names[-1]}.") else ".".join([*names[-1:], scope])
        names.append(whole)
    return names


def _module(node: Node, pattern: str) -> str | None:
    return next((name for name in _names(node) if fnmatchcase(name, pattern)), None)


def _segment(graph: OnnxGraph, first: int, last: int) -> Segment:
    nodes = graph.nodes[first : last + 1]
    inside = dict.fromkeys(name for node in nodes for name in node.outputs if name)
    stored = {*graph.parameters, *graph.buffers, *graph.scalars}
    read = dict.fromkeys(
        name for node in nodes for name in node.inputs if name and name not in inside and name not in stored
    )
    others = {name for node in (*graph.nodes[:first], *graph.nodes[last + 1 :]) for name in node.inputs}
    given = tuple(name for name in inside if name in others or name in graph.outputs)
    return Segment(first, last, tuple(read), given, tuple(inside))

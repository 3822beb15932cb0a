# SPDX-License-Identifier: Apache-2.0
"""Parts of a tensor in an ONNX model: slices that an exporter wrote one by one where PyTorch splits a tensor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .onnx_graph import Node, OnnxGraph


def with_splits(graph: OnnxGraph) -> OnnxGraph:
    """Slices one after another that take a tensor apart along an axis, as one op."""
    nodes: list[Node] = []
    run: list[Node] = []

    def end_run() -> None:
        whole = len(run) > 1 and _ends(graph, run[-1]) == graph.shapes[run[0].inputs[0]].dims[_axis(graph, run[0])]
        if whole and _starts(graph, run[0]) == 0:
            outputs = tuple(node.outputs[0] for node in run)
            nodes.append(replace(run[-1], op="Split", inputs=run[0].inputs[:1], outputs=outputs))
        else:
            nodes.extend(run)
        run.clear()

    for node in graph.nodes:
        if node.op == "Slice" and _axis(graph, node) >= 0:
            if run and not (_follows(graph, run[-1], node) and node.scopes == run[-1].scopes):
                end_run()
            run.append(node)
        else:
            end_run()
            nodes.append(node)
    end_run()
    return replace(graph, nodes=tuple(nodes))


def _number(graph: OnnxGraph, node: Node, at: int) -> int | None:
    value = graph.scalars.get(node.inputs[at]) if len(node.inputs) > at else None
    return int(np.reshape(value, -1)[0]) if value is not None and np.size(value) == 1 else None


def _axis(graph: OnnxGraph, node: Node) -> int:
    """The one axis that is sliced in steps of one; -1 for other slices."""
    axis, step = _number(graph, node, 3), _number(graph, node, 4)
    rank = len(graph.shapes[node.inputs[0]].dims)
    if axis is None or (len(node.inputs) > 4 and step != 1) or None in (_starts(graph, node), _ends(graph, node)):
        return -1
    return axis % rank


def _starts(graph: OnnxGraph, node: Node) -> int | None:
    return _number(graph, node, 1)


def _ends(graph: OnnxGraph, node: Node) -> int | None:
    end, axis = _number(graph, node, 2), _number(graph, node, 3)
    if end is None or axis is None:
        return None
    size = graph.shapes[node.inputs[0]].dims[axis]
    return min(end, size) if end >= 0 else end + size


def _follows(graph: OnnxGraph, before: Node, node: Node) -> bool:
    same = before.inputs[0] == node.inputs[0] and _axis(graph, before) == _axis(graph, node)
    return same and _ends(graph, before) == _starts(graph, node)

# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a graph are needed, in an order that defines every value before its use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from memc.ir.errors import InvalidError

from .schema import label


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs in a node's attributes."""
    found = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found.append(attribute.g)
        elif attribute.type == AttributeProto.GRAPHS:
            found.extend(attribute.graphs)
    return found


def reads(node: NodeProto) -> list[str]:
    """Names a node reads, those its subgraphs take from outside included."""
    names = [name for name in node.input if name]
    for graph in subgraphs(node):
        local = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        local |= {t.values.name for t in graph.sparse_initializer}
        local |= {name for inner in graph.node for name in inner.output}
        wanted = [name for inner in graph.node for name in reads(inner)] + [o.name for o in graph.output]
        names += [name for name in wanted if name not in local]
    return names


def needed(nodes: Sequence[NodeProto], outputs: Iterable[str], taken: Iterable[str]) -> list[NodeProto]:
    """The nodes that `outputs` depend on, sorted so that producers come first; the given order where it does that.

    `taken`: names of inputs and initializers. Raises InvalidError for names defined twice and for cycles.
    """
    producer: dict[str, int] = {}
    names = set(taken)
    for index, node in enumerate(nodes):
        for name in node.output:
            if name and name in names:
                raise InvalidError(f"invalid: {label(node)}: output `{name}` is defined a second time")
            if name:
                names.add(name)
                producer[name] = index
    sources: dict[int, list[int]] = {}
    pending = [producer[name] for name in outputs if name in producer]
    while pending:
        index = pending.pop()
        if index not in sources:
            sources[index] = sorted({producer[name] for name in reads(nodes[index]) if name in producer})
            pending += sources[index]
    if all(s < index for index, found in sources.items() for s in found):
        return [nodes[index] for index in sorted(sources)]
    return [nodes[index] for index in _sorted(nodes, sources)]


def _sorted(nodes: Sequence[NodeProto], sources: dict[int, list[int]]) -> list[int]:
    """Depth-first topological order. Raises InvalidError for a cycle."""
    done: dict[int, bool] = {}
    order: list[int] = []
    for root in sorted(sources):
        stack = [root]
        while stack:
            index = stack[-1]
            if index not in done:
                done[index] = False
                for source in sources[index]:
                    if done.get(source) is False:
                        raise InvalidError(f"invalid: {label(nodes[index])}: the graph has a cycle through this node")
                    if source not in done:
                        stack.append(source)
                continue
            stack.pop()
            if not done[index]:
                done[index] = True
                order.append(index)
    return order

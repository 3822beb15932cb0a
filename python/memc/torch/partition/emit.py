# SPDX-License-Identifier: Apache-2.0
"""A sequence of a joint graph's units as the graphs of a forward and of a backward, in that order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.utils import _is_bwd_seed_offset, _is_tangent
from torch.fx import Graph, GraphModule, Node, map_arg
from torch.fx.experimental.symbolic_shapes import find_symbol_binding_fx_nodes, free_symbols, is_symbol_binding_fx_node

from . import fx_values as fx
from .joint_graph import JointGraph, is_forward_input


class Emitter:
    """Writes units into a graph, in the order of calls."""

    def __init__(self, joint: JointGraph, inputs: Iterable[Node]) -> None:
        self.joint = joint
        self.graph = Graph()
        self.made: dict[Node, Node] = {}
        """The latest of each node of the joint graph."""
        self.viewed: dict[Node, list[Node]] = {}
        """The views that were made of a node since it was made."""
        for node in inputs:
            self.made[node] = self.graph.placeholder(node.name)
            self.made[node].meta = node.meta

    def node(self, wanted: Node) -> Node:
        """The latest copy of a node, of views made here if there is none."""
        if wanted not in self.made:
            if wanted not in self.joint.views and wanted.op != "get_attr":
                raise AssertionError(f"{wanted} is read before it is made")
            for other in wanted.all_input_nodes:
                self.node(other)
            self._copy(wanted)
            for part in self.joint.needed[wanted]:
                self.viewed.setdefault(part, []).append(wanted)
        return self.made[wanted]

    def run(self, nodes: Sequence[Node]) -> None:
        """Add a unit; views of what it made before are made of the new results when they are needed."""
        for other in nodes[0].all_input_nodes:
            self.node(other)
        for node in nodes:
            for view in self.viewed.pop(node, []):
                self.made.pop(view, None)
            self._copy(node)

    def _copy(self, node: Node) -> None:
        self.made[node] = self.graph.node_copy(node, lambda n: self.made[n])

    def finish(self, module: GraphModule, results: Sequence[Any], descriptions: Sequence[Any]) -> GraphModule:
        """The module that returns these."""
        for result in fx.leaves(list(results)):
            self.node(result)
        made = map_arg(tuple(results), lambda n: self.made[n])
        self.graph.output(made).meta["desc"] = list(descriptions)
        self.graph.lint()
        return torch.fx._lazy_graph_module._make_graph_module(module, self.graph)


def split(module: GraphModule, joint: JointGraph, sequence: Sequence[int]) -> tuple[GraphModule, GraphModule]:
    """Forward and backward of a sequence of units, with as many results of the forward more as values are saved.

    The order of what is saved is the one that AOT autograd expects: tensors, those that are saved without a check of
    their version, objects, then sizes.
    """
    units = [joint.units[n] for n in sequence]
    cut = list(sequence).index(joint.fence)
    before = [u.nodes for u in units[:cut] if u.nodes]
    after = [u.nodes for u in units[cut:] if u.nodes]
    placeholders = joint.graph.find_nodes(op="placeholder")
    saved = _saved(joint, after)
    symbols = _with_bindings(joint, [n for n in saved if fx.is_symbol(n)], [*saved, *filter(_is_tangent, placeholders)])
    kept = sorted((n for n in saved if not fx.is_symbol(n)), key=_rank)
    forward = Emitter(joint, filter(is_forward_input, placeholders))
    for nodes in before:
        forward.run(nodes)
    told = joint.forward_descriptions + [_description(number, n) for number, n in enumerate([*kept, *symbols])]
    given = [n for n in placeholders if not is_forward_input(n)]
    given.sort(key=lambda n: 0 if _is_tangent(n) else 1 if _is_bwd_seed_offset(n) else 2)
    backward = Emitter(joint, [*symbols, *kept, *given])
    for nodes in after:
        backward.run(nodes)
    return (
        forward.finish(module, [*joint.forward_results, *kept, *symbols], told),
        backward.finish(module, joint.backward_results, joint.backward_descriptions),
    )


def _saved(joint: JointGraph, after: Sequence[Sequence[Node]]) -> list[Node]:
    """What the backward reads that it does not make before, in the order of the joint graph."""
    own: set[Node] = {n for n in joint.graph.find_nodes(op="placeholder") if not is_forward_input(n)}
    found: set[Node] = set()

    def look(arguments: Iterable[Node]) -> None:
        for argument in arguments:
            found.update(n for n in joint.needed[argument] if n not in own and n.op != "get_attr")

    for nodes in after:
        look(nodes[0].all_input_nodes)
        own.update(nodes)
    look(fx.leaves(joint.backward_results))
    return [n for n in joint.graph.nodes if n in found]


def _with_bindings(joint: JointGraph, saved: Sequence[Node], tensors: Iterable[Node]) -> list[Node]:
    """The sizes that are saved, and before them those that name the symbols of what else is given to the backward."""
    named = {n: is_symbol_binding_fx_node(n) for n in saved}
    binding = [n for n in saved if named[n]]
    derived = [n for n in saved if not named[n]]
    known = {named[n] for n in binding}
    bindings = find_symbol_binding_fx_nodes(joint.graph)
    for node in [*derived, *tensors]:
        symbols = free_symbols(node.meta["val"]) if "val" in node.meta else set()
        for symbol in sorted(symbols - known, key=lambda s: str(s)):
            if symbol in bindings:
                binding.append(bindings[symbol])
            known.add(symbol)
    return binding + derived


def _rank(node: Node) -> int:
    if not fx.is_tensor(node):
        return 2
    return int(bool(node.meta.get("saved_tensor_with_no_vc_check", False)))


def _description(number: int, node: Node) -> object:
    """What AOT autograd calls a saved value."""
    try:
        from torch._functorch._aot_autograd import descriptors
    except ImportError:
        return None
    unchecked = getattr(descriptors, "SavedForBackwardsNoVcCheckAOTOutput", None)
    kind = unchecked if unchecked is not None and _rank(node) == 1 else descriptors.SavedForBackwardsAOTOutput
    return kind(number)

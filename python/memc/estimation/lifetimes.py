# SPDX-License-Identifier: Apache-2.0
"""How long a model's tensors have names, and which ops write over an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from .onnx_graph import Node, OnnxGraph

SUMS = frozenset({"Add", "Div", "Mul", "Sub"})
"""Ops whose operands may have names of their own."""


def leaving(graph: OnnxGraph, named: bool = False) -> Mapping[int, Sequence[str]]:
    """By node: the tensors whose names go out of scope after it.

    What a module is given is held by its caller until it returns, however deep inside it is read last. A result is given up with the
    op or module that reads it last, as where the next result gets its name. `named`: the operands of sums and products, and
    concatenations inside a module, have names of their own instead, which a module holds until it returns.
    """
    maker: dict[str, tuple[str, ...]] = {}
    end: dict[tuple[str, ...], int] = {}
    last: dict[str, int] = {}
    joined: list[str] = []
    for at, node in enumerate(graph.nodes):
        scopes = node.scopes
        for depth in range(len(scopes) + 1):
            end[scopes[:depth]] = at
        for name in node.outputs:
            maker[name] = scopes
            last[name] = at
            if named and node.op == "Concat" and scopes:
                joined.append(name)
    for at, node in enumerate(graph.nodes):
        scopes = node.scopes
        operands = [name for name in node.inputs if name in maker and graph.shapes[name].floating]
        held = named and node.op in SUMS and len(operands) > 1
        for name in node.inputs:
            outside = maker.get(name, ())
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(outside, scopes)))
            until = end.get(scopes[: common + 1], at) if common < len(scopes) else at
            if held and common == len(scopes):
                until = end[scopes]
            last[name] = max(last.get(name, at), at, until)
    for name in joined:
        last[name] = max(last[name], end[maker[name]])
    found: dict[int, list[str]] = {}
    for name, at in last.items():
        found.setdefault(at, []).append(name)
    return found


def in_place_of(graph: OnnxGraph, readers: Mapping[str, Sequence[Node]]) -> Mapping[str, str]:
    """By output: which operand an op writes over. ReLU and ReLU6 do, and additions before them, where nobody else reads the operand
    and nothing keeps it for the backward pass."""
    maker = {name: node.op for node in graph.nodes for name in node.outputs}
    keepers = {"Relu", "Clip", "Sigmoid", "Silu"}

    def free(name: str, out: str) -> bool:
        alone = len(readers.get(name, ())) == 1 and maker.get(name, "Relu") not in keepers
        return alone and name not in graph.outputs and graph.shapes[name] == graph.shapes[out]

    found: dict[str, str] = {}
    for node in graph.nodes:
        after = [reader.op for reader in readers.get(node.outputs[0], ())] if node.outputs else []
        if node.op in ("Relu", "Clip") or (node.op == "Add" and after in (["Relu"], ["Clip"])):
            operands = node.inputs if node.op == "Add" else node.inputs[:1]
            chosen = next((name for name in operands if free(name, node.outputs[0])), None)
            if chosen is not None:
                found[node.outputs[0]] = chosen
    return found

# SPDX-License-Identifier: Apache-2.0
"""Checks of a node against its operator's schema, and the function bodies that schemas hold."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

from memc.ir.errors import InvalidError

STANDARD = ("", "ai.onnx")


def domain_of(node: NodeProto) -> str:
    """The node's domain, with the standard one spelled as the empty string."""
    return "" if node.domain in STANDARD else str(node.domain)


def label(node: NodeProto) -> str:
    """How messages name a node: `name` (Op)."""
    name = node.name or next((o for o in node.output if o), "")
    return f"node `{name}` ({node.op_type})"


@functools.cache
def schema(op_type: str, opset: int, domain: str) -> Any:
    """The operator's schema at an opset version; None if the standard does not have it."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@functools.cache
def _rules(op_type: str, opset: int, domain: str) -> tuple[dict[str, tuple[int, bool]], tuple[int, ...]] | None:
    """Attribute types with whether each is required, and the least and most inputs and outputs."""
    found = schema(op_type, opset, domain)
    if found is None:
        return None
    attributes = {name: (int(a.type), bool(a.required)) for name, a in found.attributes.items()}
    return attributes, (found.min_input, found.max_input, found.min_output, found.max_output)


def check(node: NodeProto, opset: int, domain: str) -> None:
    """Raise InvalidError if attributes or the number of inputs or outputs contradict the schema."""
    rules = _rules(node.op_type, opset, domain)
    if rules is None:
        return
    attributes, (min_in, max_in, min_out, max_out) = rules
    seen = set()
    for attribute in node.attribute:
        expected = attributes.get(attribute.name)
        if expected is None:
            raise InvalidError(f"invalid: {label(node)}: no attribute `{attribute.name}` in opset {opset}")
        if attribute.type != expected[0] or attribute.name in seen:
            want = AttributeProto.AttributeType.Name(expected[0])
            raise InvalidError(
                f"invalid: {label(node)}: attribute `{attribute.name}`: expected one {want}, got {_type(attribute)}"
            )
        seen.add(attribute.name)
    for name, (_, required) in attributes.items():
        if required and name not in seen:
            raise InvalidError(f"invalid: {label(node)}: attribute `{name}` is missing")
    for kind, count, low, high in (
        ("inputs", len(node.input), min_in, max_in),
        ("outputs", len(node.output), min_out, max_out),
    ):
        if not low <= count <= high:
            raise InvalidError(f"invalid: {label(node)}: expected {low} to {high} {kind}, got {count}")


def _type(attribute: AttributeProto) -> str:
    try:
        return str(AttributeProto.AttributeType.Name(attribute.type))
    except ValueError:
        return str(attribute.type)


def function_body(node: NodeProto, opset: int, domain: str, types: Sequence[TypeProto]) -> FunctionProto | None:
    """The operator's definition by other operators; None if the standard gives none for this node.

    Some bodies depend on the input types and attributes (`types`: one for each input, empty for omitted ones).
    """
    found = schema(node.op_type, opset, domain)
    if found is None:
        return None
    data = b""
    fixed = [v for v in found.function_opset_versions if v <= opset]
    dependent = [v for v in found.context_dependent_function_opset_versions if v <= opset]
    if fixed:
        data = found.get_function_with_opset_version(max(fixed))
    elif dependent:
        data = found.get_context_dependent_function_with_opset_version(
            max(dependent), node.SerializeToString(), [t.SerializeToString() for t in types]
        )
    if not data:
        return None
    body = FunctionProto()
    body.ParseFromString(data)
    given = {a.name for a in body.attribute_proto}
    for name, attribute in found.attributes.items():
        if name not in given and attribute.default_value.name:
            body.attribute_proto.append(attribute.default_value)
    return body


def substitute(body: FunctionProto, node: NodeProto) -> list[NodeProto]:
    """The body's nodes with references to the function's attributes replaced by the node's values or the defaults."""
    values = {a.name: a for a in body.attribute_proto}
    values.update({a.name: a for a in node.attribute})
    return [_bind(inner, values) for inner in body.node]


def _bind(node: NodeProto, values: dict[str, AttributeProto]) -> NodeProto:
    if not any(a.ref_attr_name or a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        return node
    made = NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = values.get(attribute.ref_attr_name)
            if source is None:
                continue
            bound = made.attribute.add()
            bound.CopyFrom(source)
            bound.name = attribute.name
            continue
        copied = made.attribute.add()
        copied.CopyFrom(attribute)
        for graph in [copied.g] if copied.type == AttributeProto.GRAPH else list(copied.graphs):
            nodes = [_bind(inner, values) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
    return made

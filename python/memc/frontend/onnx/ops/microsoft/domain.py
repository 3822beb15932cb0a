# SPDX-License-Identifier: Apache-2.0
"""Registration of importers of the domain com.microsoft, with the checks that onnx has no schemas for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import AttributeProto

from memc.ir.errors import InvalidError
from memc.ir.types import DType

from ...context import Importer, Known, NodeContext, imports
from ...schema import label

DOMAIN = "com.microsoft"

FLOAT, INT, TEXT, FLOATS, INTS, TEXTS = (
    AttributeProto.FLOAT,
    AttributeProto.INT,
    AttributeProto.STRING,
    AttributeProto.FLOATS,
    AttributeProto.INTS,
    AttributeProto.STRINGS,
)
"""Types of attributes."""

_ANY = 1 << 30


def microsoft(
    op_type: str,
    inputs: tuple[int, int | None],
    outputs: int = 1,
    required: Sequence[str] = (),
    **attributes: int,
) -> Callable[[Importer], Importer]:
    """Decorator: the importer of an op of onnxruntime.

    `inputs` are the least and the most inputs (None: any number), where the first of them must be given, `outputs` is
    how many outputs there may be, and `attributes` the types of the attributes. A node of another form raises
    InvalidError of one line.
    """
    most = _ANY if inputs[1] is None else inputs[1]

    def add(fn: Importer) -> Importer:
        def checked(ctx: NodeContext) -> Sequence[Known]:
            _count(ctx, "inputs", len(ctx.node.input), inputs[0], most)
            _count(ctx, "outputs", len(ctx.node.output), 1, outputs)
            _attributes(ctx, attributes, required)
            return fn(ctx)

        imports(op_type, DOMAIN)(checked)
        return fn

    return add


def _count(ctx: NodeContext, kind: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        wanted = f"{least} or more" if most == _ANY else f"{least} to {most}" if least < most else str(least)
        raise InvalidError(f"invalid: {label(ctx.node)}: expected {wanted} {kind}, got {count}")


def _attributes(ctx: NodeContext, types: Mapping[str, int], required: Sequence[str]) -> None:
    given = set()
    for attribute in ctx.node.attribute:
        expected = types.get(attribute.name)
        if expected is None:
            raise InvalidError(f"invalid: {label(ctx.node)}: no attribute `{attribute.name}` in {DOMAIN}")
        if attribute.type != expected or attribute.name in given:
            want = AttributeProto.AttributeType.Name(expected)
            raise InvalidError(f"invalid: {label(ctx.node)}: attribute `{attribute.name}`: expected one {want}")
        given.add(attribute.name)
    for name in required:
        if name not in given:
            raise InvalidError(f"invalid: {label(ctx.node)}: attribute `{name}` is missing")


def same_type(ctx: NodeContext, *indices: int) -> DType:
    """The element type that the inputs given have in common. Raises UnsupportedError if they differ."""
    types = {i: ctx.type(i).dtype for i in indices if ctx.has(i)}
    first = next(iter(types.values()))
    for index, dtype in types.items():
        if dtype is not first:
            raise ctx.unsupported(f"expected input {index} of type {first.value} like the others, got {dtype.value}")
    return first


def require_float(ctx: NodeContext, *indices: int) -> DType:
    """As `same_type`, but the type must be a float."""
    found = same_type(ctx, *indices)
    if not found.is_float:
        raise ctx.unsupported(f"expected floats, got {ctx.type(indices[0])}")
    return found


def require_shape(ctx: NodeContext, index: int, shape: tuple[int, ...], what: str) -> None:
    """Raise UnsupportedError unless input `index` has a shape; `what` names the input."""
    if ctx.type(index).shape != shape:
        raise ctx.unsupported(f"expected {what} of shape {list(shape)}, got {ctx.type(index)}")


def require_rank(ctx: NodeContext, index: int, rank: int, what: str) -> tuple[int, ...]:
    """The shape of input `index`, which must have this rank, else UnsupportedError; `what` names the input."""
    shape = ctx.type(index).shape
    if len(shape) != rank:
        raise ctx.unsupported(f"expected {what} of rank {rank}, got {ctx.type(index)}")
    return shape

# SPDX-License-Identifier: Apache-2.0
"""From tokens to plain syntax records: literals are converted here, names are resolved in `parser`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Union

import numpy as np
from lark import Token, Transformer

from ..core import Array, Attr
from ..types import DType, TensorType
from .records import (
    AliasSyntax,
    AttrsSyntax,
    Fault,
    FunctionSyntax,
    HeaderSyntax,
    ModuleSyntax,
    OpSyntax,
    ParamSyntax,
    PlaceSyntax,
    RegionSyntax,
    TypedSyntax,
)

MAX_LIST_DEPTH = 16
"""Nesting of attribute lists that is accepted."""
MAX_REGION_DEPTH = 4
"""Nesting of regions that is accepted."""
MAX_ELEMENTS = 2**62
"""Tensors have fewer elements than this."""


class _List(tuple[Any, ...]):
    """An attribute list while it is read: how deep it nests, and the tokens of its items for messages."""

    depth: int
    tokens: list[Token | None]


@dataclass(frozen=True)
class _Scalar:
    """A literal with its token."""

    token: Token
    value: Union[bool, int, float, str, DType]


def unquote(token: Token, text: str) -> str:
    """The string that a quoted literal stands for (JSON escapes)."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        raise Fault(token, f"expected JSON string escapes, got {_short(text)}") from None
    assert isinstance(value, str)
    return value


def name_of(token: Token) -> str:
    """The name behind `%` or `@`, unquoted."""
    text = str(token)[1:]
    return unquote(token, text) if text.startswith('"') else text


def name_of_field(token: Token) -> str:
    """The name of an attribute or field, unquoted."""
    return unquote(token, str(token)) if token.type == "STRING" else str(token)


@lru_cache(maxsize=65536)
def _tensor_type(text: str) -> TensorType | str:
    """The type written as `text`, or what is wrong with it."""
    name, _, rest = text.partition("[")
    inner = rest[:-1].strip()
    dims: list[int] = []
    for part in inner.split(",") if inner else []:
        digits = part.strip()
        if not (digits.isascii() and digits.isdigit()):
            return f"expected dimensions that are non-negative integers, got {_short(text)}"
        if len(digits) > 20 or int(digits) >= MAX_ELEMENTS:
            return f"expected dimensions below 2^62, got {_short(text)}"
        dims.append(int(digits))
    if len(dims) > 32:
        return f"expected a rank of at most 32, got rank {len(dims)}"
    type = TensorType(DType(name), tuple(dims))
    if type.span >= MAX_ELEMENTS:
        return f"expected a tensor below 2^62 bytes, extents of 0 left out, got {_short(text)}"
    return type


def _short(text: str, limit: int = 60) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return f"`{shown if len(shown) <= limit else shown[: limit - 3] + '...'}`"


class ToSyntax(Transformer):  # type: ignore[misc]  # lark is Any to the checker
    """Callbacks of the grammar's rules, called as they are recognized (no parse tree is made)."""

    def start(self, items: list[Any]) -> ModuleSyntax:
        headers = [item for item in items if isinstance(item, HeaderSyntax)]
        return ModuleSyntax(headers, items[len(headers) :])

    def target(self, items: list[Any]) -> HeaderSyntax:
        name = items[1] if len(items) == 3 else None
        return HeaderSyntax(items[0], name, [(token, _plain(value)) for token, value in items[-1]])

    space = target
    link = target

    def function(self, items: list[Any]) -> FunctionSyntax:
        return FunctionSyntax(*items)

    def params(self, items: list[Any]) -> list[Any]:
        return items

    def param(self, items: list[Any]) -> ParamSyntax:
        name, *rest = items
        role = rest.pop() if isinstance(rest[-1], Token) and rest[-1].type == "NAME" else None
        return ParamSyntax(name, self.typed(rest), role)

    def role(self, items: list[Any]) -> Token:
        token: Token = items[0]
        return token

    def one_result(self, items: list[Any]) -> list[Any]:
        return [(self.typed(items), None, None)]

    def results(self, items: list[Any]) -> list[Any]:
        return items

    def result(self, items: list[Any]) -> tuple[TypedSyntax, Token | None, tuple[Token, Any] | None]:
        name, extent = [*items[1:], None, None][:2]
        return self.typed(items[:1]), name, extent

    def extent(self, items: list[Any]) -> tuple[Token, Any]:
        most, cuts = items
        return most, cuts

    ops = params
    values = params
    targets = params
    types = params
    fields = params
    bare = role
    quoted = role

    def typed(self, items: list[Any]) -> TypedSyntax:
        token, *rest = items
        type = _tensor_type(str(token))
        if isinstance(type, str):
            raise Fault(token, type)
        alias = next((r for r in rest if isinstance(r, AliasSyntax)), None)
        place = next((r for r in rest if isinstance(r, PlaceSyntax)), None)
        return TypedSyntax(token, type, alias, place)

    def alias(self, items: list[Any]) -> AliasSyntax:
        return AliasSyntax(items[0], _offset(items[1]))

    def place(self, items: list[Any]) -> PlaceSyntax:
        return PlaceSyntax(name_of(items[0]), _offset(items[1]))

    def workspace(self, items: list[Any]) -> ParamSyntax | None:
        return ParamSyntax(items[0], self.typed(items[1:]), None) if items else None

    def region(self, items: list[Any]) -> RegionSyntax | None:
        if not items:
            return None
        params, ops, yields = items
        inner = max((op.region.depth for op in ops if op.region is not None), default=0)
        if inner >= MAX_REGION_DEPTH:
            return RegionSyntax([], [], [], inner + 1)
        return RegionSyntax(params, ops, yields, inner + 1)

    def location(self, items: list[Any]) -> str | None:
        return unquote(items[0], str(items[0])) if items else None

    def op(self, items: list[Any]) -> OpSyntax:
        found = OpSyntax(*items)
        if found.region is not None and found.region.depth > MAX_REGION_DEPTH:
            raise Fault(found.callee, f"expected at most {MAX_REGION_DEPTH} nested regions")
        return found

    def attrs(self, items: list[Any]) -> AttrsSyntax:
        found: dict[str, Attr] = {}
        names: dict[str, Token] = {}
        for token, value in items:
            name = name_of_field(token)
            if name in found:
                raise Fault(token, f"expected each attribute once, got `{name}` again")
            if isinstance(value, _List) and value.depth > MAX_LIST_DEPTH:
                raise Fault(token, f"expected lists nested at most {MAX_LIST_DEPTH} deep, got depth {value.depth}")
            found[name], names[name] = _plain(value), token
        return AttrsSyntax(found, names)

    def plan(self, items: list[Any]) -> list[tuple[Token, Any]]:
        return [(token, _plain(value)) for token, value in items]

    def attr(self, items: list[Any]) -> tuple[Token, Any]:
        return items[0], items[1]

    def integer(self, items: list[Any]) -> _Scalar:
        token = items[0]
        if len(token) > 21 or not -(2**63) <= int(token) < 2**64:
            raise Fault(token, f"expected an integer of 64 bits, got {_short(token)}")
        return _Scalar(token, int(token))

    def real(self, items: list[Any]) -> _Scalar:
        token = items[0]
        value = float(token)
        if math.isinf(value) and not token.endswith("inf"):
            raise Fault(token, f"expected a float of 64 bits (or inf), got {_short(token)}")
        return _Scalar(token, value)

    def boolean(self, items: list[Any]) -> _Scalar:
        return _Scalar(items[0], str(items[0]) == "true")

    def string(self, items: list[Any]) -> _Scalar:
        return _Scalar(items[0], unquote(items[0], str(items[0])))

    def dtype(self, items: list[Any]) -> _Scalar:
        return _Scalar(items[0], DType(str(items[0])))

    def items(self, items: list[Any]) -> _List:
        depth = 1 + max((i.depth for i in items if isinstance(i, _List)), default=0)
        found = _List() if depth > MAX_LIST_DEPTH else _List(_plain(i) for i in items)
        found.depth = depth
        found.tokens = [i.token if isinstance(i, _Scalar) else None for i in items]
        return found

    def dense(self, items: list[Any]) -> Array:
        token, values = items
        return _dense(token, self.typed([token]).type, values)


def _plain(value: Any) -> Attr:
    if isinstance(value, _Scalar):
        return value.value
    if isinstance(value, _List):
        return tuple(value)
    found: Attr = value
    return found


def _offset(token: Token) -> int:
    if len(token) > 20 or not 0 <= int(token) < MAX_ELEMENTS:
        raise Fault(token, f"expected a byte offset in [0, 2^62), got {_short(token)}")
    return int(token)


def _dense(token: Token, type: TensorType, values: _List) -> Array:
    """The array of a dense literal. Raises Fault for a wrong count, kind or range of elements."""
    if len(values) != type.elements:
        raise Fault(token, f"expected {type.elements} elements for {type}, got {len(values)}")
    for item, value in zip(values.tokens, values):
        if item is None:
            raise Fault(token, f"expected a flat list of {type.dtype.value} elements, got a nested one")
        if type.dtype is DType.BOOL:
            good = isinstance(value, bool)
        elif type.dtype.is_integer:
            info = np.iinfo(type.dtype.numpy)
            good = isinstance(value, int) and not isinstance(value, bool) and int(info.min) <= value <= int(info.max)
        else:
            good = isinstance(value, float)
        if not good:
            raise Fault(item, f"expected an element of {type.dtype.value}, got {_short(item)}")
    with np.errstate(all="ignore"):
        wide = np.array(tuple(values), dtype=np.float64 if type.dtype.is_float else type.dtype.numpy)
        array = wide.astype(type.dtype.numpy)
        if type.dtype.is_float:
            bad = np.flatnonzero(np.isinf(array.astype(np.float64)) & ~np.isinf(wide))
            if bad.size:
                item = values.tokens[int(bad[0])]
                assert item is not None
                raise Fault(item, f"expected a value in the range of {type.dtype.value}, got {_short(item)}")
    return array.reshape(type.shape)

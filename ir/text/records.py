# SPDX-License-Identifier: Apache-2.0
"""Plain records of what a .memir text says, as `syntax` makes them and `parser` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token

from ..core import Attr
from ..types import TensorType


class Fault(Exception):
    """A mistake in the text at `token`; `parser` turns it into an InvalidError with file, line and column."""

    def __init__(self, token: Token, message: str) -> None:
        super().__init__(message)
        self.token = token


@dataclass(frozen=True)
class AliasSyntax:
    """`alias %root[offset]`."""

    root: Token
    offset: int


@dataclass(frozen=True)
class PlaceSyntax:
    """`@space[offset]`."""

    space: str
    offset: int


@dataclass(frozen=True)
class TypedSyntax:
    """A type with what may follow it."""

    token: Token
    type: TensorType
    alias: AliasSyntax | None
    place: PlaceSyntax | None


@dataclass(frozen=True)
class ParamSyntax:
    """A parameter of a function or region."""

    name: Token
    typed: TypedSyntax
    role: Token | None


@dataclass(frozen=True)
class RegionSyntax:
    """The body of a fused op."""

    params: list[ParamSyntax]
    ops: list[OpSyntax]
    yields: list[Token]
    depth: int


@dataclass(frozen=True)
class AttrsSyntax:
    """Attributes, and their names as they are given, for messages."""

    values: dict[str, Attr]
    names: dict[str, Token]


@dataclass(frozen=True)
class OpSyntax:
    """One operation."""

    targets: list[Token]
    callee: Token
    operands: list[Token]
    attrs: AttrsSyntax
    plan: list[tuple[Token, Any]]
    """Names and values of the plan's fields, as they are given."""
    workspace: ParamSyntax | None
    region: RegionSyntax | None
    types: list[TypedSyntax]
    location: str | None


@dataclass(frozen=True)
class FunctionSyntax:
    """One function; `results` are (type, name or None, extent or None)."""

    name: Token
    params: list[ParamSyntax]
    results: list[tuple[TypedSyntax, Token | None, tuple[Token, Any] | None]]
    ops: list[OpSyntax]
    returns: list[Token]


@dataclass(frozen=True)
class HeaderSyntax:
    """A line before the functions, of the target, a space or a link: names and values of its fields, as they are given."""

    keyword: Token
    name: Token | None
    fields: list[tuple[Token, Any]]


@dataclass(frozen=True)
class ModuleSyntax:
    """A whole text."""

    headers: list[HeaderSyntax]
    functions: list[FunctionSyntax]

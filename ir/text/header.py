# SPDX-License-Identifier: Apache-2.0
"""The lines before the functions, which say what a module is for: its target with memory spaces and links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from lark import Token

from ..errors import UsageError
from ..spaces import Link, Space
from ..target import Target
from .fields import fields_of
from .syntax import Fault, HeaderSyntax, name_of

T = TypeVar("T")


def target_of(headers: Iterable[HeaderSyntax]) -> Target:
    """The target that a module's text begins with; the CPU where it says nothing. Raises Fault."""
    found: dict[str, Any] = {"kind": "llvm"}
    given: dict[str, Token] = {}
    spaces: list[Space] = []
    links: list[Link] = []
    last: Token | None = None
    for header in headers:
        last = header.keyword
        if header.keyword == "target":
            own, given = fields_of(header.fields, Target, "a target", ("spaces", "links"))
            found.update(own)
        elif header.name is not None:
            last = header.name
            spaces.append(_made(header, Space, "a space", name=name_of(header.name)))
        else:
            links.append(_made(header, Link, "a link"))
    try:
        return Target.of(**found, spaces=spaces, links=links)
    except UsageError as error:  # An arch beside the wrong kind, or spaces and links that do not go together.
        where = given.get("arch") if "arch" in str(error) else None
        if where is None and last is None:
            raise
        raise Fault(where or last, str(error)) from None


def _made(header: HeaderSyntax, kind: type[T], what: str, **known: str) -> T:
    """What a line describes. `known`: fields that are not among those in braces."""
    found, _ = fields_of(header.fields, kind, what, tuple(known))
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in found and field.name not in known:
            raise Fault(header.keyword, f"expected the {field.name} of {what}, got none")
    try:
        return kind(**known, **found)
    except UsageError as error:
        raise Fault(header.name or header.keyword, str(error)) from None

# SPDX-License-Identifier: Apache-2.0
"""The lines before the functions, which say what a module is for: its target with memory spaces and links."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from lark import Token

from ..checked import Refused, hints, taken
from ..errors import UsageError
from ..spaces import Link, Space
from ..target import Target
from .syntax import Fault, HeaderSyntax, name_of, unquote

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
            own, given = _values(header, Target, "a target", ("spaces", "links"))
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
    found, _ = _values(header, kind, what, tuple(known))
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in found and field.name not in known:
            raise Fault(header.keyword, f"expected the {field.name} of {what}, got none")
    try:
        return kind(**known, **found)
    except UsageError as error:
        raise Fault(header.name or header.keyword, str(error)) from None


def _values(
    header: HeaderSyntax, kind: type, what: str, apart: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Token]]:
    """The fields in braces by name, each checked by itself, and their tokens. `apart`: fields that have lines of their own."""
    known = {name: hint for name, hint in hints(kind).items() if name not in apart}
    found: dict[str, Any] = {}
    given: dict[str, Token] = {}
    for token, value in header.fields:
        name = unquote(token, str(token)) if token.type == "STRING" else str(token)
        if name not in known:
            raise Fault(token, f"expected a field of {what} ({', '.join(known)}), got {name}{near(name, known)}")
        if name in given:
            raise Fault(token, f"expected each field of {what.replace('a ', 'the ', 1)} once, got {name} again")
        given[name] = token
        try:
            found[name] = taken(value, known[name])
        except Refused as error:
            raise Fault(token, f"{name}: {error}") from None
    return found, given


def near(name: str, known: Iterable[str], sigil: str = "") -> str:
    """`; did you mean NAME?` for the known name most like `name`; empty if none is."""
    close = difflib.get_close_matches(name[:80], list(known)[:5000], n=1)
    return f"; did you mean {sigil}{close[0]}?" if close else ""

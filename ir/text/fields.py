# SPDX-License-Identifier: Apache-2.0
"""Fields of a dataclass in braces, as targets, spaces, links and plans have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lark import Token

from ..checked_options import Refused, hints, taken
from ..messages import nearest
from .records import Fault
from .syntax import name_of_field


def fields_of(
    given: Sequence[tuple[Token, Any]], kind: type, what: str, apart: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, Token]]:
    """The fields that are given by name, each checked by itself, and their tokens. `apart`: fields that are written elsewhere.
    Raises Fault."""
    known = {name: hint for name, hint in hints(kind).items() if name not in apart}
    found: dict[str, Any] = {}
    tokens: dict[str, Token] = {}
    for token, value in given:
        name = name_of_field(token)
        if name not in known:
            raise Fault(token, f"expected a field of {what} ({', '.join(known)}), got {name}{nearest(name, known)}")
        if name in tokens:
            raise Fault(token, f"expected each field of {what.replace('a ', 'the ', 1)} once, got {name} again")
        tokens[name] = token
        try:
            found[name] = taken(value, known[name])
        except Refused as error:
            raise Fault(token, f"{name}: {error}") from None
    return found, tokens

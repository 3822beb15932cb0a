# SPDX-License-Identifier: Apache-2.0
"""Pipeline text: `in-place,share{strategy=color},assign-addresses{solver=best-fit alignment=256}`.

Passes are separated by commas, options by commas or spaces. A value runs to the next separator outside brackets, so
lists `[a,b]` and braced text `{...}` may hold separators; quotes do too.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from memc.ir.checked_options import Refused, hints, in_bytes, require, taken
from memc.ir.errors import UsageError
from memc.passes.base import Pass
from memc.passes.registry import line, third_party

_OPEN = {"{": "}", "[": "]", "(": ")"}

_ITEM = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,"'])+""")
"""Of a list; what is between quotes may hold commas."""


@dataclasses.dataclass
class _Reader:
    text: str
    at: int = 0

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def skip(self, characters: str) -> None:
        while self.peek() and self.peek() in characters:
            self.at += 1

    def word(self) -> str:
        start = self.at
        while self.peek() and (self.peek().isalnum() or self.peek() in "-_."):
            self.at += 1
        return self.text[start : self.at]

    def value(self) -> str:
        """Up to a separator or closing brace outside brackets and quotes."""
        start, closers, quote = self.at, "", ""
        while character := self.peek():
            if quote:
                quote = "" if character == quote else quote
            elif character in "'\"":
                quote = character
            elif character in _OPEN:
                closers += _OPEN[character]
            elif closers and character == closers[-1]:
                closers = closers[:-1]
            elif character in "}])":
                break
            elif not closers and character in ", \t\n":
                break
            self.at += 1
        if closers or quote:
            raise self.error(f"expected {(quote or closers[-1])!r} before the end", start)
        return self.text[start : self.at]

    def error(self, message: str, at: int | None = None) -> UsageError:
        return UsageError(f"pass pipeline, position {(self.at if at is None else at) + 1}: {message}")


def parse_pipeline(
    text: str, known: Mapping[str, type[Pass]], broken: Mapping[str, str] = MappingProxyType({})
) -> list[Pass]:
    """The passes of pipeline `text`. Raises UsageError with the position for anything it cannot read.

    `broken`: why passes cannot be had that there ought to be, by name.
    """
    reader = _Reader(require(text, str, "pass pipeline"))
    passes: list[Pass] = []
    reader.skip(" \t\n")
    while reader.peek():
        start = reader.at
        name = reader.word()
        if not name:
            raise reader.error(f"expected a pass name, got {reader.peek()!r}; known passes: {_listed(known)}")
        if name not in known and name in broken:
            raise reader.error(broken[name], start)
        if name not in known:
            raise reader.error(f"unknown pass {name!r}{_hint(name, known)}; known passes: {_listed(known)}", start)
        reader.skip(" \t\n")
        options = _options(reader, known[name]) if reader.peek() == "{" else {}
        passes.append(_made(reader, known[name], options, start))
        reader.skip(" \t\n")
        if not reader.peek():
            break
        if reader.peek() != ",":
            raise reader.error(f"expected ',' between passes, got {reader.peek()!r}")
        reader.at += 1
        reader.skip(" \t\n")
        if not reader.peek():
            raise reader.error("expected a pass name after ','")
    return passes


def _made(reader: _Reader, kind: type[Pass], options: Mapping[str, Any], start: int) -> Pass:
    try:
        return kind(**options)
    except UsageError as error:  # Options that do not go together: each of them is right.
        raise reader.error(str(error), start) from None
    except Exception as error:
        who = third_party(kind)
        if who is None:
            raise
        raise reader.error(f"pass {kind.name} of {who} cannot be made: {line(error)}", start) from error


def _options(reader: _Reader, kind: type[Pass]) -> dict[str, Any]:
    fields = hints(kind)
    spelled = [name.replace("_", "-") for name in fields]
    found: dict[str, Any] = {}
    reader.at += 1
    while True:
        reader.skip(", \t\n")
        if reader.peek() == "}":
            reader.at += 1
            return found
        start = reader.at
        word = reader.word()
        if not reader.peek() and not word:
            raise reader.error(f"expected '}}' after the options of {kind.name}")
        name = word.replace("-", "_")
        if name not in fields:
            shown = word or reader.peek()
            known = f"its options: {_listed(spelled)}" if spelled else "it has no options"
            raise reader.error(f"{kind.name} has no option {shown!r}{_hint(word, spelled)}; {known}", start)
        if name in found:
            raise reader.error(f"option {word!r} of {kind.name} is given twice", start)
        reader.skip(" \t\n")
        if reader.peek() == "=":
            reader.at += 1
            reader.skip(" \t\n")
            start = reader.at
            value = reader.value()
        elif fields[name] is bool:
            value = "true"
        else:
            raise reader.error(f"expected '=' and a value after option {word!r} of {kind.name}")
        try:
            found[name] = option_value(value, fields[name])
        except Refused as error:
            raise reader.error(f"option {word!r} of {kind.name}: {error}", start) from None


def option_value(text: str, hint: Any) -> Any:
    """The option value that `text` stands for. Raises Refused for a value that the option does not take."""
    try:
        return taken(_convert(text, hint), hint)
    except Refused as error:
        raise Refused(error.expected, text, error.near) from None
    except ValueError as error:
        raise Refused(str(error), text) from None


def _convert(text: str, hint: Any) -> Any:
    """The value of a type that `text` stands for; whether the option takes it is not seen to here. Raises ValueError saying
    what was expected."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        base, *rules = typing.get_args(hint)
        return text if in_bytes(rules) else _convert(text, base)
    if origin is typing.Literal:
        return next((choice for choice in typing.get_args(hint) if str(choice) == text), text)
    if origin in (typing.Union, types.UnionType):
        if text == "none" and not any(text in typing.get_args(a) for a in typing.get_args(hint)):
            return None
        return _convert(text, next(a for a in typing.get_args(hint) if a is not type(None)))
    if origin is tuple:
        inner = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
        parts = (part.strip() for part in _ITEM.findall(inner))
        return tuple(part[1:-1] if part[0] == part[-1] in ("'", '"') else part for part in parts if part)
    if hint is bool:
        if text.lower() in ("true", "1", "on"):
            return True
        if text.lower() in ("false", "0", "off"):
            return False
        raise ValueError("true or false")
    if hasattr(hint, "parse"):
        return hint.parse(text)
    if hint is int or hint is float:
        try:
            return hint(text)
        except ValueError:
            raise ValueError("an integer" if hint is int else "a number") from None
    if text[:1] in ("'", '"', "{") and len(text) > 1:
        return text[1:-1]
    return text


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.replace("_", "-"), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

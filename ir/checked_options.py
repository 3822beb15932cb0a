# SPDX-License-Identifier: Apache-2.0
"""Options that are checked when they are made: dataclasses whose annotations say what each field takes.

    @dataclass(frozen=True)
    class Search(Checked):
        solver: Literal["beam", "exact"] = "beam"
        slack: Annotated[float, Range(least=0, below=1)] = 0.0

A field is a bool, int, float, str, `Literal` choices, another class, `Optional` or `Union` of those, `tuple[X, ...]`,
`Sequence[X]` or `Mapping[str, X]`, each of them `Annotated` with rules where the type does not say all. Numbers are finite,
and numpy's are taken as Python's own. A class that has a `parse` is also given as text.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from memc.ir.errors import UsageError
from memc.ir.messages import nearest, shown
from memc.ir.option_rules import InBytes as InBytes
from memc.ir.option_rules import OneOf as OneOf
from memc.ir.option_rules import PowerOfTwo as PowerOfTwo
from memc.ir.option_rules import Range as Range
from memc.ir.option_rules import What as What
from memc.ir.sizes import parse_size

F32_MOST = float(np.finfo(np.float32).max)
"""The largest number that f32 has."""

F32_LEAST = float(np.finfo(np.float32).tiny)
"""The smallest positive number that f32 has in full precision."""

I64_MOST = 2**63 - 1


class Refused(ValueError):
    """A value that an option does not take."""

    def __init__(self, expected: str, got: object, near: str = "", inside: str = "") -> None:
        self.expected, self.got, self.near = expected, got, near
        self.inside = inside
        """Where in a list or dict the value is; empty for the option itself."""
        super().__init__(f"{inside}expected {expected}, got {shown(got)}{near}")


Rule = Union[Range, PowerOfTwo, InBytes, What, OneOf]

Alignment = Annotated[int, PowerOfTwo()]
"""Bytes."""
Count = Annotated[int, Range(least=1)]
"""A number of things, at least one."""
Amount = Annotated[int, Range(least=0)]
"""A number of things."""
ByteCount = Annotated[int, Range(least=0), InBytes()]
"""A number of bytes, also as text."""
Share = Annotated[float, Range(least=0, below=1)]
"""A part of a whole."""


@dataclasses.dataclass(frozen=True)
class Checked:
    """Base of options that check their fields when they are made: by a constructor, pipeline text or `dataclasses.replace`.

    Raises UsageError naming the field, what it takes and what it got. Subclasses add rules between fields by `check`; one
    that has a `__post_init__` of its own finds the fields checked there.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            def after_checks(self: Any) -> None:
                Checked.__post_init__(self)
                own(self)

            cls.__post_init__ = after_checks  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        owner = self.owner()
        for name, hint in hints(type(self)).items():
            value = getattr(self, name)
            found = require(value, hint, f"{owner}: {name}" if owner else name)
            if found is not value:
                object.__setattr__(self, name, found)
        self.check()

    def owner(self) -> str:
        """What messages call these options; empty if a field's name says enough."""
        return ""

    def check(self) -> None:
        """Raise UsageError for fields that do not go together."""


def hints(kind: type) -> Mapping[str, Any]:
    """What each field of a dataclass takes. Raises UsageError for an annotation that names nothing."""
    known: Any = kind  # Classes can be hashed, whatever their instances can.
    return _hints(known)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    try:
        found = typing.get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise UsageError(f"{kind.__qualname__}: annotations cannot be read: {error}") from None
    return {field.name: found[field.name] for field in dataclasses.fields(kind)}


def require(value: object, hint: Any, where: str) -> Any:
    """`value` as `hint` has it. Raises UsageError that begins with `where`."""
    try:
        return taken(value, hint)
    except Refused as error:
        raise UsageError(f"{where}: {error}") from None


def require_one_of(value: object, names: Iterable[str], where: str) -> str:
    """A name among `names`. Raises UsageError that begins with `where`, lists them and gives the nearest."""
    try:
        return str(_one_of(value, list(names)))
    except Refused as error:
        raise UsageError(f"{where}: {error}") from None


def taken(value: object, hint: Any) -> Any:
    """`value` as an annotation has it: numpy's numbers as Python's, lists as tuples. Raises Refused for another value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _ruled(value, arguments[0], arguments[1:])
    if origin is Literal:
        return _one_of(value, arguments)
    if origin in (Union, types.UnionType):
        return _any_of(value, arguments)
    if origin is tuple or origin is collections.abc.Sequence:
        return _items(value, arguments[0])
    if origin is collections.abc.Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise Refused("a dict by name", value)
        return {str(name): _inside(item, arguments[1], f"`{name}`: ") for name, item in value.items()}
    if hint is Any:
        return value
    if hint is bool:
        if not isinstance(value, (bool, np.bool_)):
            raise Refused("true or false", value)
        return bool(value)
    if hint is int:
        return _whole(value)
    if isinstance(value, str) and hasattr(hint, "parse"):
        try:
            return hint.parse(value)
        except ValueError as error:
            raise Refused(str(error), value) from None
    if isinstance(hint, type) and issubclass(hint, float):
        return _real(value, hint)
    if hint is str:
        if not isinstance(value, str):
            raise Refused("text", value)
        return str(value)
    if isinstance(hint, type) and not isinstance(value, hint):
        article = "an" if hint.__name__[:1] in "AEIOU" else "a"
        raise Refused(f"{article} {hint.__name__}", value)
    return value


def in_bytes(rules: Iterable[Any]) -> bool:
    """Whether rules are of a number of bytes, which may be given as text."""
    return any(isinstance(rule, (InBytes, PowerOfTwo)) for rule in rules)


def is_whole(value: object) -> bool:
    """Whether it is a whole number, numpy's included."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether it is a number, numpy's included."""
    return is_whole(value) or isinstance(value, (float, np.floating))


def _ruled(value: object, base: Any, rules: Sequence[Any]) -> Any:
    for rule in rules:
        if isinstance(rule, OneOf):
            return _one_of(value, rule.names())
    bounds = [rule for rule in rules if isinstance(rule, (Range, PowerOfTwo, What))]
    what = next((rule.what for rule in bounds if rule.what), None)
    if isinstance(value, str) and in_bytes(rules):
        value = _size(value, what)
    try:
        found = taken(value, base)
    except Refused as error:
        raise Refused(what or error.expected, error.got, error.near, error.inside) from None
    for rule in bounds:
        if not rule.holds(found):
            kind = what or ("a whole number" if base is int else "a number")
            raise Refused(f"{kind} {rule.said(found)}".strip(), value)
    return found


def _size(text: str, what: str | None) -> int:
    """The bytes that a size such as `4KiB` stands for."""
    try:
        return parse_size(text)
    except UsageError:
        raise Refused(what or "a whole number or a size such as 4KiB", text) from None


def _one_of(value: object, names: Sequence[Any]) -> Any:
    for name in names:
        if type(name) is type(value) or (isinstance(name, str) and isinstance(value, str)):
            if name == value:
                return name
    texts = [str(name) for name in names]
    near = nearest(value, texts) if isinstance(value, str) else ""
    raise Refused(f"one of {', '.join(texts)}", value, near)


def _any_of(value: object, hints: Sequence[Any]) -> Any:
    """The first of some alternatives that takes the value. The message is of all, or of the one for values of its kind."""
    if value is None and type(None) in hints:
        return None  # Whichever comes first; most fields of most plans of ops.
    refusals: list[Refused] = []
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return taken(value, hint)
        except Refused as error:
            refusals.append(error)
    if len(refusals) == 1:
        raise refusals[0]
    expected = [error.expected.removeprefix("one of ") for error in refusals]
    near = next((error.near for error in refusals if error.near), "")
    raise Refused(f"{', '.join(expected[:-1])} or {expected[-1]}", value, near)


def _items(value: object, hint: Any) -> tuple[Any, ...]:
    """A list or tuple, element by element; text is none, although Python reads it letter by letter."""
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    what = {int: "a list of whole numbers", str: "a list of names", float: "a list of numbers"}.get(base, "a list")
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, (Sequence, np.ndarray)):
        raise Refused(what, value)
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise Refused(what, value)
    try:
        return tuple(taken(item, hint) for item in value)
    except Refused as error:
        expected = what + error.expected.removeprefix("a whole number").removeprefix("text").removeprefix("a number")
        raise Refused(expected if base in (int, str, float) else error.expected, value, error.near) from None


def _inside(value: object, hint: Any, where: str) -> Any:
    try:
        return taken(value, hint)
    except Refused as error:
        raise Refused(error.expected, error.got, error.near, where + error.inside) from None


def _whole(value: object) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise Refused("a whole number", value)
    if not -I64_MOST - 1 <= value <= I64_MOST:
        raise Refused("a whole number of 64 bits", value)
    return int(value)


def _real(value: object, kind: type[float]) -> float:
    """A finite number as `kind`, which is float or a class of numbers such as durations, with a `rule` then."""
    rule: Range | None = getattr(kind, "rule", None)
    what = (rule.what if rule is not None else None) or "a number"
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise Refused(what, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refused(f"{what.replace('a number', 'a finite number', 1)}", value)
    if rule is not None and not rule.holds(number):
        raise Refused(f"{what} {rule.said(number)}", value)
    return value if type(value) is kind else kind(number)

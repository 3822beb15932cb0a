# SPDX-License-Identifier: Apache-2.0
"""IR to .memir text. `parser.parse` reads back exactly the same module."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from ..core import FUSED, UNPLANNED, Array, Attr, Block, Function, Op, OpPlan, Value
from ..spaces import DeviceId, Link
from ..target import Target
from ..type_inference import is_registered
from ..types import DType, TensorType

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$-]+")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
KEYWORDS = frozenset({"func", "return", "yield", "loc", "alias"})
"""Words that cannot be the bare name of an op."""


def print_function(function: Function) -> str:
    """The text of one function, ending in a newline."""
    params = ", ".join(_param(p) for p in function.params)
    header = f"func @{_name(function.name)}({params}) -> {_results(function)} {{\n"
    return header + "".join(_body(function, "return", "  ")) + "}\n"


def print_target(target: Target) -> str:
    """The lines before the functions of a module for `target`, each with a newline: none for what targets have by themselves."""
    arch = f"arch = {quote(target.arch)}, " if target.arch else ""
    own = f"target {{kind = {quote(target.kind)}, {arch}alignment = {target.alignment}}}\n"
    plain = (target.kind, target.arch, target.alignment) == (Target.kind, Target.arch, Target.alignment)
    spaces = [
        f"space @{_name(s.name)} {{device = {quote(str(s.device))}, holds = {quote(s.holds)}}}\n"
        for s in target.more_spaces()
    ]
    return "".join(["" if plain else own, *spaces, *map(_link, target.links)])


def _link(link: Link) -> str:
    found = [
        (field.name, getattr(link, field.name)) for field in fields(Link) if getattr(link, field.name) != field.default
    ]
    shown = (f"{name} = {quote(str(v)) if isinstance(v, DeviceId) else print_attr(v)}" for name, v in found)
    return f"link {{{', '.join(shown)}}}\n"


def print_op(op: Op, indent: str = "") -> str:
    """The text of one op, without a final newline; a region takes several lines."""
    parts = [indent]
    if op.results:
        parts.append(", ".join(print_name(r) for r in op.results) + " = ")
    known = is_registered(op.name) or op.name == FUSED
    parts.append(op.name if known and op.name not in KEYWORDS else quote(op.name))
    parts.append(f"({', '.join(print_name(v) for v in op.operands)})")
    if op.attrs:
        parts.append(f" {_braces(op.attrs)}")
    if op.plan != UNPLANNED:
        parts.append(f" plan {_braces(decisions(op.plan))}")
    if op.workspace is not None:
        parts.append(f" workspace({print_name(op.workspace)}: {op.workspace.type}{_place(op.workspace)})")
    if op.region is not None:
        parts.append(_region(op.region, indent))
    types = ", ".join(_typed(r) for r in op.results) if op.results else "()"
    parts.append(f" : {types}")
    if op.location is not None:
        parts.append(f" loc({quote(op.location)})")
    return "".join(parts)


def decisions(plan: OpPlan) -> dict[str, Attr]:
    """What a plan says, by the names of its fields."""
    found = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return {name: value for name, value in found.items() if value != getattr(UNPLANNED, name)}


def print_name(value: Value) -> str:
    """The value's name as written in text, with %."""
    return "%" + _name(value.name)


def print_attr(value: Attr) -> str:
    """An attribute's value. Raises TypeError for something that cannot be an attribute."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, DType):
        return value.value
    if isinstance(value, tuple):
        return f"[{', '.join(print_attr(v) for v in value)}]"
    if isinstance(value, np.ndarray):
        return _dense(value)
    raise TypeError(f"not an attribute: {value!r}")


def quote(text: str) -> str:
    """A quoted string on one line, with JSON escapes."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _braces(attrs: Mapping[str, Attr]) -> str:
    return "{" + ", ".join(f"{_key(k)} = {print_attr(v)}" for k, v in attrs.items()) + "}"


def _body(block: Block, last: str, indent: str) -> list[str]:
    lines = [print_op(op, indent) + "\n" for op in block.ops]
    returns = ", ".join(print_name(v) for v in block.returns)
    lines.append(f"{indent}{last} {returns}".rstrip() + "\n")
    return lines


def _region(region: Block, indent: str) -> str:
    params = ", ".join(_param(p) for p in region.params)
    return f" region({params}) {{\n" + "".join(_body(region, "yield", indent + "  ")) + indent + "}"


def _results(function: Function) -> str:
    names = function.result_names
    if len(function.returns) == 1 and not names:
        return str(function.returns[0].type)
    parts = [str(v.type) for v in function.returns]
    if names:
        extents = {e.count: f", most = {e.most}, cuts = {print_attr(e.cuts)}" for e in function.extents}
        parts = [f"{p} {{name = {quote(name)}{extents.get(n, '')}}}" for n, (p, name) in enumerate(zip(parts, names))]
    return f"({', '.join(parts)})"


def _param(value: Value) -> str:
    role = f" {{role = {value.role.value}}}" if value.role is not None else ""
    return f"{print_name(value)}: {_typed(value)}{role}"


def _typed(value: Value) -> str:
    alias = f" alias {print_name(value.alias.root)}[{value.alias.offset}]" if value.alias is not None else ""
    return f"{value.type}{alias}{_place(value)}"


def _place(value: Value) -> str:
    place = value.placement
    return f" @{_name(place.space)}[{place.offset}]" if place is not None else ""


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote(name)


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else quote(name)


def _dense(array: Array) -> str:
    type = TensorType(DType.from_numpy(array.dtype), array.shape)
    return f"dense<{type}>[{', '.join(_element(v, type.dtype) for v in array.reshape(-1))}]"


def _element(value: np.generic, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    wide = float(value)
    if not math.isfinite(wide):
        return repr(wide)
    # The fewest digits that read back to the same bits; 17 always do.
    for digits in () if dtype is DType.F64 else range(1, 10):
        text = repr(float(f"{wide:.{digits}g}"))
        with np.errstate(over="ignore"):
            if np.float64(text).astype(dtype.numpy) == value:
                return text
    return repr(wide)

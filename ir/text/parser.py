# SPDX-License-Identifier: Apache-2.0
""".memir text to IR. The grammar is `memir.lark`; docs/memir.md describes the format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from ..checked_options import require
from ..copies import with_host_space
from ..core import FUSED, UNPLANNED, Alias, Block, Function, Op, OpPlan, Placement, Role, Value
from ..data_dependent_extents import Extent
from ..errors import InvalidError
from ..messages import nearest
from ..module import Module
from ..ops.shared import op_def
from .fields import fields_of
from .header import target_of
from .plan_fields import planned_attribute
from .records import Fault, FunctionSyntax, ModuleSyntax, OpSyntax, ParamSyntax, RegionSyntax, TypedSyntax
from .syntax import ToSyntax, name_of, unquote

_TERMINALS = {
    "VALUE": "a value (%name)",
    "GLOBAL": "a name (@name)",
    "TYPE": "a type such as f32[1,3]",
    "DTYPE": "a dtype",
    "NAME": "a name",
    "STRING": "a string",
    "INT": "an integer",
    "FLOAT": "a float",
    "BOOL": "true or false",
    "$END": "the end",
}


def parse(text: str, filename: str = "<string>") -> Module:
    """The module written as `text`.

    Raises InvalidError whose first line is `file:line:col: message`, followed by the source line and a caret.
    Syntax and names are checked here; types and everything else by `verifier.verify`.
    """
    text = require(text, str, "IR text").removeprefix("\ufeff")
    try:
        syntax: ModuleSyntax = _lark().parse(text)
        return _module(syntax)
    except Fault as fault:
        token = fault.token
        raise _error(text, filename, token.line or 1, token.column or 1, str(fault)) from None
    except UnexpectedInput as error:
        raise _syntax_error(text, filename, error) from None


@lru_cache(maxsize=1)
def _lark() -> Lark:
    grammar = (Path(__file__).parent / "memir.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=False, transformer=ToSyntax())


def _module(whole: ModuleSyntax) -> Module:
    module = Module(target=target_of(whole.headers))
    names: set[str] = set()
    for syntax in whole.functions:
        name = name_of(syntax.name)
        if name in names:
            raise Fault(syntax.name, f"expected each function once, got @{name} again")
        names.add(name)
        module.functions.append(_function(name, syntax))
    module.target = with_host_space(module.target, module.functions)
    return module


def _plan(given: list[tuple[Token, Any]]) -> OpPlan:
    return OpPlan(**fields_of(given, OpPlan, "a plan")[0]) if given else UNPLANNED


def _function(name: str, syntax: FunctionSyntax) -> Function:
    function = Function([], name=name)
    _Scope(function, f"function @{name}").fill(syntax.params, syntax.ops, syntax.returns)
    if len(syntax.results) != len(function.returns):
        where = syntax.returns[0] if syntax.returns else syntax.name
        raise Fault(
            where, f"expected {len(syntax.results)} returned values as @{name} says, got {len(function.returns)}"
        )
    for number, (token, value, (typed, label, extent)) in enumerate(
        zip(syntax.returns, function.returns, syntax.results)
    ):
        if value.type != typed.type:
            raise Fault(token, f"expected {typed.type} as @{name} says, got {value.type}")
        if label is not None:
            function.result_names.append(unquote(label, str(label)))
        if extent is not None:
            function.extents.append(_extent(number, *extent))
    if function.result_names and len(function.result_names) != len(function.returns):
        raise Fault(syntax.name, f"expected names for all results of @{name} or for none")
    return function


def _extent(number: int, most: Token, cuts: Any) -> Extent:
    """What a result says that it counts."""
    pairs = [each if isinstance(each, tuple) else () for each in cuts]
    if any(len(each) != 2 or any(type(part) is not int for part in each) for each in pairs):
        raise Fault(most, "expected `cuts` to hold pairs of a result and an axis")
    return Extent(number, int(most), tuple((result, axis) for result, axis in pairs))


@dataclass
class _Scope:
    """Fills one block from its syntax."""

    block: Block
    owner: str

    def fill(self, params: list[ParamSyntax], ops: list[OpSyntax], returns: list[Token]) -> None:
        self.values: dict[str, Value] = {}
        self.aliases: list[tuple[Value, TypedSyntax]] = []
        self.pending = [t for op in ops for t in op.targets]
        for param in params:
            value = self.define(param.name, param.typed)
            value.role = _role(param)
            self.block.params.append(value)
        for op in ops:
            self.block.ops.append(self.op(op))
        self.block.returns = [self.use(token) for token in returns]
        for value, typed in self.aliases:
            assert typed.alias is not None
            value.alias = Alias(self.use(typed.alias.root), typed.alias.offset)

    def define(self, token: Token, typed: TypedSyntax) -> Value:
        name = name_of(token)
        if name in self.values:
            raise Fault(token, f"expected each name once in {self.owner}, got {token} again")
        place = Placement(typed.place.space, typed.place.offset) if typed.place is not None else None
        value = self.values[name] = Value(name, typed.type, placement=place)
        if typed.alias is not None:
            self.aliases.append((value, typed))
        return value

    def use(self, token: Token) -> Value:
        value = self.values.get(name_of(token))
        if value is not None:
            return value
        name = name_of(token)
        for target in self.pending:
            if name_of(target) == name:
                raise Fault(token, f"expected a value defined before its use, got {token} of line {target.line}")
        raise Fault(token, f"expected a value of {self.owner}, got undefined {token}{nearest(name, self.values, '%')}")

    def op(self, syntax: OpSyntax) -> Op:
        name = _op_name(syntax.callee)
        operands = [self.use(token) for token in syntax.operands]
        if len(syntax.targets) != len(syntax.types):
            raise Fault(
                syntax.callee,
                f"expected one type for each of the {len(syntax.targets)} results of {name}, got {len(syntax.types)}",
            )
        results = [self.define(token, typed) for token, typed in zip(syntax.targets, syntax.types)]
        workspace = syntax.workspace
        scratch = self.define(workspace.name, workspace.typed) if workspace is not None else None
        body = _region(syntax.region, name) if syntax.region is not None else None
        for attr, token in syntax.attrs.names.items():
            misplaced = planned_attribute(name, attr, syntax.attrs.values[attr])
            if misplaced is not None:
                raise Fault(token, misplaced)
        plan = _plan(syntax.plan)
        return Op(name, operands, results, syntax.attrs.values, plan, body, scratch, syntax.location)


def _region(syntax: RegionSyntax, name: str) -> Block:
    block = Block([])
    _Scope(block, f"the region of {name}").fill(syntax.params, syntax.ops, syntax.yields)
    return block


def _role(param: ParamSyntax) -> Role | None:
    if param.role is None:
        return None
    try:
        return Role(str(param.role))
    except ValueError:
        known = ", ".join(role.value for role in Role)
        raise Fault(param.role, f"expected a role ({known}), got {param.role}") from None


def _op_name(token: Token) -> str:
    if token.type == "STRING":
        name = unquote(token, str(token))
        if not name:
            raise Fault(token, "expected an op name, got an empty string")
        return name
    name = str(token)
    if op_def.lookup(name) is None and name != FUSED:
        known = {d.name: d for d in op_def.registered()}
        raise Fault(
            token, f'expected a registered op, got {name}{nearest(name, known)} (write a foreign op as "{name}")'
        )
    return name


def _syntax_error(text: str, filename: str, error: UnexpectedInput) -> InvalidError:
    line, column = int(error.line), int(error.column)
    if isinstance(error, UnexpectedToken):
        expected = set(error.accepts or error.expected)
        got = "the end of the text" if error.token.type == "$END" else f"`{_visible(str(error.token))}`"
    elif isinstance(error, UnexpectedCharacters):
        expected = set(error.allowed or ())
        got = f"`{_visible(text[error.pos_in_stream : error.pos_in_stream + 1])}`"
    else:
        assert isinstance(error, UnexpectedEOF)
        expected, got = set(error.expected), "the end of the text"
    if got == "the end of the text" or line < 1:
        line = text.count("\n") + 1
        column = len(text) - (text.rfind("\n") + 1) + 1
    return _error(text, filename, line, column, f"expected {_terminals(expected)}, got {got}")


def _terminals(names: set[str]) -> str:
    shown = []
    for terminal in sorted(_lark().terminals, key=lambda t: t.name):
        if terminal.name in names and terminal.name not in ("COMMENT", "WHITESPACE"):
            literal = f"`{terminal.pattern.value}`" if isinstance(terminal.pattern, PatternStr) else ""
            shown.append(literal or _TERMINALS.get(terminal.name, terminal.name))
    if "$END" in names:
        shown.append(_TERMINALS["$END"])
    return " or ".join(shown) or "something else"


def _visible(text: str, limit: int = 40) -> str:
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return cut if cut.isprintable() else repr(cut)[1:-1]


def _error(text: str, filename: str, line: int, column: int, message: str) -> InvalidError:
    """The message with the source line (a window of it, if long) and a caret under the column."""
    lines = text.split("\n")
    source = lines[line - 1] if line <= len(lines) else ""
    start = max(0, column - 1 - 80)
    window = source[start : start + 120]
    shown = "".join(c if c.isprintable() else " " for c in window)
    caret = " " * (column - 1 - start) + "^"
    return InvalidError(f"{filename}:{line}:{column}: {_visible(message, 400)}\n  {shown.rstrip()}\n  {caret}")

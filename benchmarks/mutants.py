# SPDX-License-Identifier: Apache-2.0
"""Mutants of Python source: one small fault each, as a programmer might make it, written into the text at its place.

Comparisons (`<` becomes `<=`), arithmetic (`+` becomes `-`), conditions (`and` becomes `or`, `not` is dropped), constants (a
number grows by one, True becomes False), statements that are removed, and arguments that are swapped. What tests cannot see is
left alone: annotations, default messages, docstrings, imports, decorators and what a `raise` says.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

REMOVED = (ast.Raise, ast.Continue, ast.Break, ast.AugAssign, ast.Delete)
"""Statements that may be replaced by `pass`, besides calls and assignments to parts of objects."""


@dataclass(frozen=True)
class Mutant:
    """A fault in a file's text."""

    line: int
    """Where it begins, from 1 on."""
    kind: str
    text: str
    """The whole file with the fault."""

    def diff(self, source: str, path: str) -> str:
        """What is different, as a unified diff without context."""
        lines = difflib.unified_diff(source.splitlines(), self.text.splitlines(), path, path, lineterm="", n=0)
        return "\n".join(list(lines)[2:])


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a file, in the order of their places. Raises SyntaxError for text that is no Python."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    raw = source.encode()
    found: dict[tuple[int, int, str], Mutant] = {}
    for node in _nodes(ast.parse(source)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for kind, changed in _changes(node):
            # In brackets: how tightly an operator binds is not what is tried.
            closed = isinstance(node, (ast.stmt, ast.Call, ast.Constant)) or changed.isidentifier()
            text = changed if closed else f"({changed})"
            whole = (raw[:begin] + text.encode() + raw[end:]).decode()
            found[(begin, end, text)] = Mutant(node.lineno, kind, whole)
    return [found[key] for key in sorted(found)]


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Nodes whose faults tests could see."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "exc", "cause", "msg", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
                continue
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child
            yield from _nodes(child)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    """Kinds of faults of one node, with the text that takes its place."""
    if isinstance(node, ast.Compare):
        for number, op in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[number] = COMPARISONS[type(op)]()
            yield "comparison", ast.unparse(changed)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield "arithmetic", ast.unparse(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "condition", ast.unparse(ast.BoolOp(other, node.values))
        for number in range(len(node.values)):
            rest = [value for n, value in enumerate(node.values) if n != number]
            yield "condition", ast.unparse(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "condition" if isinstance(node.op, ast.Not) else "arithmetic", ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        changed_value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield "constant", repr(changed_value)
    elif isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args):
        first, second, *others = node.args
        symmetric = isinstance(node.func, ast.Name) and node.func.id in ("max", "min", "isinstance")
        if not symmetric and ast.dump(first) != ast.dump(second):
            yield "arguments", ast.unparse(ast.Call(node.func, [second, first, *others], node.keywords))
    elif _may_go(node):
        yield "statement", "pass"


def _may_go(node: ast.expr | ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Yield, ast.YieldFrom))
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, REMOVED)

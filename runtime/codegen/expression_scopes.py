# SPDX-License-Identifier: Apache-2.0
"""Whether variables are read only where they are bound: what TVM's elimination of common subexpressions may break.

It chooses the place of a variable without looking into the bodies of `Let` expressions, but replaces the expression there
too: a kernel with an expression twice in one loop, and in a `Let` of the next, reads in that loop what only the other one
defines.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from memc.runtime.codegen.expressions import walk


def is_defined(func: tirx.PrimFunc) -> bool:
    """Whether every variable that a statement binds is read only where it is bound.

    `tirx.analysis.undefined_vars` does not say: for it, a variable is known after its statement even outside of the loop.
    """
    bound = {statement.var for statement in walk(func.body, tirx.Bind)}
    return not bound or reads_what_is_bound(func.body, bound, set())


def reads_what_is_bound(statement: Any, bound: set[Any], known: set[Any]) -> bool:
    """Whether the variables among `bound` that a statement reads are `known`, to which those that it binds are added."""
    if isinstance(statement, tirx.SeqStmt):
        return all(reads_what_is_bound(part, bound, known) for part in statement.seq)
    bodies = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    inner = [body for body in bodies if isinstance(body, tirx.Stmt)]
    if not inner:
        read = {v for v in walk(statement, tirx.Var) if v in bound}
        if isinstance(statement, tirx.Bind):
            read = {v for v in walk(statement.value, tirx.Var) if v in bound}
        if not read <= known:
            return False
        if isinstance(statement, tirx.Bind):
            known.add(statement.var)
        return True
    heads = [getattr(statement, name, None) for name in ("min", "extent", "step", "condition", "value")]
    read = {v for head in heads if isinstance(head, tvm.ir.Expr) for v in walk(head, tirx.Var) if v in bound}
    return read <= known and all(reads_what_is_bound(body, bound, set(known)) for body in inner)

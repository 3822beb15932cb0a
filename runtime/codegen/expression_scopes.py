# SPDX-License-Identifier: Apache-2.0
"""Guards TVM's elimination of common subexpressions, which uses some of its variables out of their scope.

It chooses the place of a variable without looking into the bodies of `Let` expressions, but replaces the expression there
too: a kernel with an expression twice in one loop, and in a `Let` of the next, reads in that loop what only the other one
defines. LLVM refuses such code. Without elimination the code is right, and LLVM finds common subexpressions itself.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

ELIMINATION = "tirx.CommonSubexprElim"


@tvm.instrument.pass_instrument
class ExpressionScopes:
    """Skips the elimination for a module in which it would leave variables undefined."""

    def __init__(self) -> None:
        self.trying = False

    def should_run(self, module: tvm.ir.IRModule, info: Any) -> bool:
        if info.name != ELIMINATION or self.trying:
            return True
        self.trying = True
        try:
            changed = tirx.transform.CommonSubexprElim()(module)
        finally:
            self.trying = False
        return all(is_defined(func) for func in changed.functions.values())


def is_defined(func: tirx.PrimFunc) -> bool:
    """Whether every variable of a function is defined before it is used."""
    try:
        return not tirx.analysis.undefined_vars(func.body, func.params)
    except tvm.error.InternalError:  # A variable that is defined after a use.
        return False

# SPDX-License-Identifier: Apache-2.0
"""Vectorized loops that TVM cannot vectorize: those with a `Let` expression whose value is the same for all lanes.

TVM keeps such a value as it is, and looks at some expressions twice (arguments of calls, say). The second time it finds the
variable bound to another one that it made for it, and gives up. The loop runs one element after another instead; the compilers of
what TVM generates vectorize it.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from memc.runtime.codegen.expressions import walk

TWO_VALUES = "Let cannot bind the same var to two different values"
"""What TVM says of such a loop, if it does look twice."""


def serialize_invariant(module: tvm.ir.IRModule) -> tvm.ir.IRModule:
    """The module, its functions' vectorized loops with such a `Let` made serial."""
    changed = {}
    for name, func in module.functions.items():
        if not isinstance(func, tirx.PrimFunc):
            continue
        if any(_is_refused(loop) for loop in walk(func.body, tirx.For)):
            body = tvm_ffi.structural_map(
                func.body, (tirx.For, lambda loop: _serial(loop) if _is_refused(loop) else loop)
            )
            changed[name] = func.with_body(body)
    if not changed:
        return module
    module = tvm.ir.IRModule(module.functions, attrs=module.attrs)
    module.update(tvm.ir.IRModule(changed))
    return module


def _is_refused(loop: tirx.For) -> bool:
    """Whether a loop is vectorized, and a `Let` in it binds what does not change along it."""
    if loop.kind != tirx.ForKind.VECTORIZED:
        return False
    lets = walk(loop.body, tirx.Let)
    varying = {loop.loop_var}
    count = 0
    while count != len(varying):  # Values come in any order: until nothing is added.
        count = len(varying)
        varying |= {let.var for let in lets if any(v in varying for v in walk(let.value, tirx.Var))}
    return any(let.var not in varying for let in lets)


def _serial(loop: tirx.For) -> tirx.For:
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

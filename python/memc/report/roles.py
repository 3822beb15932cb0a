# SPDX-License-Identifier: Apache-2.0
"""What the storages of a planned function hold, as pictures and traces colour them."""

from __future__ import annotations

from memc.ir.copies import is_done, is_start
from memc.ir.core import Function, Op, Role, Value

ACTIVATIONS, GRADIENTS, WORKSPACES = "activations", "gradients and updates", "workspaces"
RECOMPUTED, COPIED_IN, STATES, ON_HOST = "recomputed", "copied in", "states", "on the host"

LOSS = "loss"
"""What a training step calls its first result."""


def storage_roles(function: Function) -> dict[Value, str]:
    """The role of each root of results and workspaces. Of a training step, results that the loss does not depend on are `gradients and
    updates`."""
    forward = _forward(function)
    found: dict[Value, str] = {param: STATES for param in function.params_of(Role.STATE)}
    for op in function.ops:
        if op.workspace is not None:
            found[op.workspace] = WORKSPACES
        for result in op.results:
            found.setdefault(result, _role(op, forward))
    return found


def _role(op: Op, forward: set[Op] | None) -> str:
    if is_start(op) or is_done(op):
        return ON_HOST if op.name.startswith("offload") else COPIED_IN
    if op.plan.recompute:
        return RECOMPUTED
    return ACTIVATIONS if forward is None or op in forward else GRADIENTS


def _forward(function: Function) -> set[Op] | None:
    """The ops that a training step's loss depends on; None for a function that does not train."""
    if LOSS not in function.result_names or not function.params_of(Role.STATE):
        return None
    found: set[Op] = set()
    waiting = [function.returns[function.result_names.index(LOSS)]]
    while waiting:
        op = waiting.pop().op
        if op is not None and op not in found:
            found.add(op)
            waiting += op.operands
    return found

# SPDX-License-Identifier: Apache-2.0
"""Which fields of `OpPlan` an op may have. What a field may hold, `OpPlan` checks by itself; `aliases` checks operands that are
written in place, and `kernel_races` ops that share a kernel."""

from __future__ import annotations

from ..core import UNPLANNED, Op
from ..ops.shared.op_def import chosen_kernel, lookup, main_op
from ..text.plan_fields import FOREIGN_FIELDS, is_foreign, planned_attribute
from ..text.printer import decisions
from .error_location import Where

INNER_FIELDS = ("mirror", "recompute")
"""What a plan says of an op inside a fused group: kernels, bytes and launches are the group's."""


def verify_attributes(where: Where, op: Op) -> None:
    """Raise InvalidError for an attribute that says what the op's plan is to say."""
    for name, value in op.attrs.items():
        misplaced = planned_attribute(op.name, name, value)
        if misplaced is not None:
            where.fail(misplaced)


def verify_op_plan(where: Where, op: Op, in_region: bool) -> None:
    """Raise InvalidError unless the op's plan says only what can be decided about such an op."""
    plan = op.plan
    if plan is UNPLANNED or plan == UNPLANNED:
        return
    for name in decisions(plan):
        if in_region and name not in INNER_FIELDS:
            where.fail(f"expected `{name}` in the plan of the fused op, got it on an op inside its region")
        if is_foreign(op.name) and name not in FOREIGN_FIELDS:
            where.fail(f"expected a plan of {', '.join(FOREIGN_FIELDS)} on a foreign op, got `{name}`")
    if plan.library_kernel is not None and chosen_kernel(op) is None:
        definition = lookup(main_op(op).name) if op.region is None or op.region.ops else None
        known = ", ".join(k.symbol for k in definition.library) if definition is not None else ""
        where.fail(f"expected a library kernel of {op.name} ({known or 'it has none'}), got {plan.library_kernel!r}")
    kernel = chosen_kernel(op)
    if plan.precision is not None and (kernel is None or kernel.target != "cuda"):
        where.fail(f"expected `precision` beside a library kernel of CUDA, got {plan.library_kernel}")
    if plan.joint is None and (plan.lane is not None or plan.rows is not None):
        where.fail("expected `lane` and `rows` beside the number of a joint kernel, `joint`, got none")
    if plan.lane is not None and plan.rows is not None:
        where.fail("expected `lane` or `rows`, as a joint kernel is of one kind, got both")

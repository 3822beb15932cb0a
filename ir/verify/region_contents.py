# SPDX-License-Identifier: Apache-2.0
"""What is in a region, so that one which has not changed since it was checked is not checked again."""

from __future__ import annotations

import operator

from ..core import Block


def contents(region: Block) -> list[object]:
    """All that makes a region valid or not, apart from the elements of arrays: two with identical contents are the same."""
    values = list(region.params)
    found: list[object] = [len(values), *values, *region.returns]
    for op in region.ops:
        values += op.results
        found += (op, op.name, op.plan, op.region, op.workspace, len(op.operands), len(op.results), len(op.attrs))
        found += (*op.operands, *op.results, *op.attrs, *op.attrs.values())
    for value in values:
        found += (value.name, value.type, value.op, value.role, value.alias, value.placement)
    return found


def are_identical(some: list[object], others: list[object]) -> bool:
    """Whether two lists hold the very same objects."""
    return len(some) == len(others) and all(map(operator.is_, some, others))

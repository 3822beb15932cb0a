# SPDX-License-Identifier: Apache-2.0
"""Which values of a head have its classes along their last axis, and which of its ops are made of others.

Extents alone do not say so: hidden states may be as wide as there are classes, and labels have an axis as long.
"""

from __future__ import annotations

from collections.abc import Collection

from memc.ir.core import Op, Value
from memc.ir.op_queries import has
from memc.ir.ops.shared.op_def import Trait


def with_classes(product: Op, ops: Collection[Op]) -> frozenset[Value]:
    """The values that `ops` make or read whose last axis is that of the classes of a product's scores: by way of ops that keep that
    axis, from the scores on, and back to what those ops read with them."""
    last = product.result.type.shape[-1:]
    found, count = {product.result}, 0
    while count < len(found):
        count = len(found)
        for op in ops:
            values = (*op.operands, *op.results)
            if op is not product and keeps_classes(op) and any(v in found for v in values):
                found.update(v for v in values if v.type.shape[-1:] == last)
    return frozenset(found)


def keeps_classes(op: Op) -> bool:
    """Whether an op's result may have the last axis of what it reads."""
    return op.name == "reshape" or has(op, Trait.ELEMENTWISE)


def sources(values: Collection[Value], ops: Collection[Op], known: Collection[Value] = ()) -> set[Op]:
    """Those of `ops` that values are computed by, where `known` values are not computed."""
    found: set[Op] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value in known or value.op is None or value.op not in ops or value.op in found:
            continue
        found.add(value.op)
        pending.extend(value.op.operands)
    return found

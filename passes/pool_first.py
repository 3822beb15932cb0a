# SPDX-License-Identifier: Apache-2.0
"""max_pool(relu(x)) becomes relu(max_pool(x)): the same values and gradients, from fewer elements.

The gradient of relu then needs the pooled result, which the next layer keeps anyway, instead of one as large as x. Ties
make no difference: where the largest element of a window is not positive, relu lets no gradient through.
"""

from __future__ import annotations

from collections.abc import Iterator

from memc.ir.core import Function, Op, Value
from memc.ir.ops.window import window


def pool_first(function: Function, names: Iterator[str]) -> None:
    """Exchange each max_pool with the relu before it that it alone reads; `names` are fresh ones."""
    uses, returned = function.uses(), set(function.returns)
    ops: list[Op] = []
    for op in function.ops:
        relu = op.operands[0].op if op.name == "max_pool" else None
        alone = relu is not None and relu.name == "relu" and len(uses[relu.result]) == 1
        if relu is None or not alone or relu.result in returned or not _filled(op):
            ops.append(op)
            continue
        pooled = Value(next(names), op.result.type)
        ops.append(Op(op.name, relu.operands, [pooled], op.attrs, location=op.location))
        ops.append(Op(relu.name, [pooled], op.results, relu.attrs, location=relu.location))
        ops.remove(relu)
    function.ops = ops


def _filled(pool: Op) -> bool:
    """Whether every window holds an element: one of padding alone gives the lowest number, which relu would change."""
    extents = pool.operands[0].type.shape[2:]
    view = window(pool.attrs, None, len(extents))
    for axis, (extent, count) in enumerate(zip(extents, view.output(extents))):
        for start in (k * view.strides[axis] - view.low[axis] for k in range(count)):
            if not any(0 <= start + tap * view.dilations[axis] < extent for tap in range(view.kernel[axis])):
                return False
    return True

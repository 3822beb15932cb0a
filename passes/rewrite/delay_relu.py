# SPDX-License-Identifier: Apache-2.0
"""relu moves behind what commutes with it: the same values and gradients, and less to keep for them.

    max_pool(relu(x))                 relu(max_pool(x))
    concat(relu(x), relu(y) ...)      relu(concat(x, y ...))

The gradient of relu needs its result. Behind a pool or a concat that is the value which the next layer keeps anyway, not
another one beside it. Ties in a pool make no difference: where the largest element of a window is not positive, relu lets
no gradient through.
"""

from __future__ import annotations

from collections.abc import Iterator

from memc.ir.core import Function, Op, Value
from memc.ir.ops.shared.window import window


def relu_later(function: Function, names: Iterator[str]) -> None:
    """Exchange each max_pool and concat with the relus before it that it alone reads; `names` are fresh ones."""
    uses, returned = function.uses(), set(function.returns)
    ops: list[Op] = []
    for op in function.ops:
        relus = [v.op for v in op.operands if v.op is not None and v.op.name == "relu"]
        alone = all(len(uses[relu.result]) == 1 and relu.result not in returned for relu in relus)
        if not relus or len(relus) < len(op.operands) or not alone or not _commutes(op):
            ops.append(op)
            continue
        before = Value(next(names), op.result.type)
        ops = [other for other in ops if other not in relus]
        operands = [relu.operands[0] for relu in relus]
        ops.append(Op(op.name, operands, [before], op.attrs, op.plan, location=op.location))
        first = relus[0]
        ops.append(Op("relu", [before], op.results, first.attrs, first.plan, location=first.location))
    function.ops = ops


def _commutes(op: Op) -> bool:
    return op.name == "concat" or (op.name == "max_pool" and _filled(op))


def _filled(pool: Op) -> bool:
    """Whether every window holds an element: one of padding alone gives the lowest number, which relu would change."""
    extents = pool.operands[0].type.shape[2:]
    view = window(pool.attrs, None, len(extents))
    for axis, (extent, count) in enumerate(zip(extents, view.output(extents))):
        for start in (k * view.strides[axis] - view.low[axis] for k in range(count)):
            if not any(0 <= start + tap * view.dilations[axis] < extent for tap in range(view.kernel[axis])):
                return False
    return True

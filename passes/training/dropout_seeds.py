# SPDX-License-Identifier: Apache-2.0
"""What dropout, and whatever else draws at random, draws from in a training step: a counter among the states, which every
micro-batch moves by one.

Masks are a function of the counter and of each op's stream (`ir/ops/shared/philox.py`), so that they differ from step to step,
the backward pass and recomputations generate them again, and a restored step goes on with the masks it would have drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Op, Role, Value
from memc.ir.errors import UsageError
from memc.ir.op_queries import draws
from memc.ir.types import DType, TensorType

MAX_SEED = 2**31 - 1


def first_count(seed: int) -> int:
    """Where the counter begins: the seed in the upper half, so that steps of one seed never meet those of another.

    Raises UsageError for a seed that does not fit.
    """
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"build-gradient: expected a seed from 0 to {MAX_SEED}, got {seed}")
    return seed << 32


def share_seed(ops: Sequence[Op]) -> Value | None:
    """Make all ops that draw at random, and whose seed is a constant, read one new value instead, and return that; None if
    there are none.

    A seed that is computed or given to the function stays: the model draws from it by its own choice.
    """
    drawing = [op for op in ops if op.region is None and draws(op)]
    constant = [op for op in drawing if _is_constant(op.operands[-1])]
    if not constant:
        return None
    shared = Value("seed", TensorType(DType.I64, ()))
    for op in constant:
        op.operands = [*op.operands[:-1], shared]
    return shared


def _is_constant(seed: Value) -> bool:
    return seed.role is Role.WEIGHT or (seed.op is not None and seed.op.name == "constant")


def without_dropout(ops: Sequence[Op], output: Value) -> tuple[list[Op], Value]:
    """The ops without dropout, whose readers read its operand, and what `output` is then; attention drops no weights."""
    source: dict[Value, Value] = {}
    kept = []
    for op in ops:
        op.operands = [source.get(v, v) for v in op.operands]
        if op.name == "dropout":
            source[op.result] = op.operands[0]
            continue
        if op.name == "attention_training" and draws(op):
            op.operands = op.operands[:-1]
            op.attrs = {name: value for name, value in op.attrs.items() if name not in ("ratio", "stream")}
        kept.append(op)
    return kept, source.get(output, output)

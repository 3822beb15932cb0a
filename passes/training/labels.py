# SPDX-License-Identifier: Apache-2.0
"""Integer labels of a function: which inputs hold them, what they must be, and how many are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memc.ir.build import IRBuilder
from memc.ir.core import Op, Role, Value
from memc.ir.ops.labels import LABEL_LOSSES, ignored_label, wrong
from memc.ir.ops.shared.casts import cast
from memc.ir.types import DType

KEEPS_ALL = frozenset({"reshape", "transpose", "copy", "hold", "cast"})
"""Ops that keep every element of integers, if to no narrower type."""


@dataclass(frozen=True)
class LabelInput:
    """What an input that holds labels is checked for."""

    input: str
    classes: int | None
    """Labels name classes from 0 on; None for labels that are numbers to be met."""
    ignore_index: int | None
    """The label that does not count; None if every label does."""


def label_inputs(ops: Sequence[Op]) -> list[LabelInput]:
    """The inputs of which every element is a label of a loss among `ops`, each for each loss once."""
    found: dict[LabelInput, None] = {}
    for op in ops:
        if op.name not in LABEL_LOSSES:
            continue
        scores, labels = op.operands
        source = _input_of(labels)
        if source is not None:
            found[LabelInput(source.name, scores.type.shape[1], ignored_label(op.attrs, labels.type.dtype))] = None
    return list(found)


def _input_of(labels: Value) -> Value | None:
    """The input whose elements these are."""
    value = labels
    while value.op is not None:
        source = value.op.operands[0] if value.op.name in KEEPS_ALL else None
        if source is None or not source.type.dtype.is_integer or source.type.dtype.itemsize > value.type.dtype.itemsize:
            return None
        value = source
    return value if value.role is Role.INPUT else None


def append_outside(b: IRBuilder, ops: Sequence[Op]) -> Value:
    """How many labels of the losses among `ops` count but name no class, i64[]."""
    total = None
    for op in [op for op in ops if op.name in LABEL_LOSSES and not op.plan.recompute]:
        bad = cast(b, wrong(b, op), DType.I64)
        count = b.op("reduce_sum", [bad], axes=tuple(range(bad.type.rank)), keepdims=False)
        total = count if total is None else b.op("add", [total, count])
    return b.scalar(0, DType.I64) if total is None else total

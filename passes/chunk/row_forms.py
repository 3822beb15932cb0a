# SPDX-License-Identifier: Apache-2.0
"""How an op runs on some of its rows: which operands it then reads by rows, and what its result is of them.

The rows of a tensor are the positions along its leading axes, as many of them as multiply to a given number: tokens of
[4,1024,768] for 4,096 rows, sequences for 4. Some rows one after another are one run of bytes, so to take them costs nothing. A
slice of a tensor has its rows along one axis, and the other axes behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from memc.ir.core import Attr, Op, Value
from memc.ir.op_queries import has
from memc.ir.ops.shared.common import int_attr, ints_attr
from memc.ir.ops.shared.op_def import Trait

CONVOLUTIONS = ("conv", "conv_channels_last", "conv_transpose", "conv_transpose_channels_last")
"""Ops whose first operand and result have a batch axis, and whose other operands are weights."""
WEIGHT_GRADIENTS = ("conv_grad_weight", "conv_grad_weight_channels_last")
POOLS = ("max_pool", "max_pool_taps", "max_pool_grad", "sum_pool", "sum_pool_grad", "avg_pool")
"""Ops all of whose operands have a batch axis."""
ALONG_AXIS = ("softmax", "log_softmax", "gather_elements", "concat")
"""Ops along attribute `axis`, all of whose operands have rows."""
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean")
STATEFUL = ("assign", "copy", "hold")
"""Elementwise ops that mean more than their elements."""

Shape = Sequence[int]


@dataclass(frozen=True)
class RowForm:
    """An op on a slice."""

    operands: tuple[int | None, ...]
    """Of each operand, how many leading axes its rows are along; None for one that is read whole."""
    result: int | None
    """The same of the result; None where the results of all slices are to be added up."""
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    rest: tuple[int, ...] | None = None
    """The attribute `shape` behind the rows, of an op that has one."""
    whole: tuple[tuple[int, ...] | None, ...] = ()
    """Of operands that are read whole, the shape they are read in where it is not their own."""


Found = Union[RowForm, str]
"""The form, or why there is none."""


def lead_of(shape: Shape, rows: int) -> int | None:
    """How many leading axes have `rows` positions; None if none do."""
    product = 1
    for count, extent in enumerate(shape, 1):
        product *= extent
        if product == rows:
            return count
        if product == 0 or product > rows:
            return None
    return None


def row_form(op: Op, rows: int, sliced: Collection[Value]) -> Found:
    """How `op` runs on slices. `sliced`: values of which there are slices alone while it does."""
    if op.region is not None or len(op.results) != 1 or not op.operands or has(op, Trait.COPY):
        return "it is no single op with one result"
    if has(op, Trait.RANDOM):
        return "it draws random numbers by position"
    if op.name == "matmul":
        return _matmul(op, rows, sliced)
    if op.name in REDUCTIONS:
        return _reduction(op, rows)
    if op.name in CONVOLUTIONS or op.name in WEIGHT_GRADIENTS or op.name in POOLS:
        return _batched(op, rows, sliced)
    if has(op, Trait.ELEMENTWISE) and op.name not in STATEFUL:
        return _elementwise(op, rows)
    if op.name in ALONG_AXIS:
        return _along_axis(op, rows)
    moves = {"transpose": _transpose, "reshape": _reshape, "broadcast": _broadcast, "slice": _slice, "pad": _pad}
    return moves[op.name](op, rows) if op.name in moves else "no rule says which rows it reads"


def _elementwise(op: Op, rows: int) -> Found:
    shape = op.result.type.shape
    lead = lead_of(shape, rows)
    if lead is None:
        return f"its result has no axes of {rows} rows"
    found = [_operand(v.type.shape, shape, lead) for v in op.operands]
    if any(form is None for form in found):
        return "an operand is repeated along some of the rows"
    known = [form for form in found if form is not None]
    return RowForm(tuple(form[0] for form in known), lead, op.attrs, whole=tuple(form[1] for form in known))


def _operand(shape: Shape, result: Shape, lead: int) -> tuple[int | None, tuple[int, ...] | None] | None:
    """How an elementwise op reads an operand: its leading axes, if by rows, and else its shape behind them, if it has them."""
    missing = len(result) - len(shape)
    if missing >= lead:
        return None, None
    before = tuple(shape[: lead - missing])
    if missing == 0 and before == tuple(result[:lead]):
        return lead, None
    return (None, tuple(shape[lead - missing :])) if all(n == 1 for n in before) else None


def _matmul(op: Op, rows: int, sliced: Collection[Value]) -> Found:
    a, b = (v.type.shape for v in op.operands)
    t_a, t_b = (bool(op.attrs.get(name, False)) for name in ("transpose_a", "transpose_b"))
    lead_a, lead_b = lead_of(a, rows), lead_of(b, rows)
    if len(a) == len(b) == 2 and t_a and not t_b and lead_a == lead_b == 1:
        return RowForm((1, 1), None, op.attrs)
    if lead_a is None:
        return f"its first factor has no axes of {rows} rows"
    if lead_a <= len(a) - 2 and len(a) == len(b) and a[:lead_a] == b[:lead_a]:
        return RowForm((lead_a, lead_a), lead_a, op.attrs)
    inside = lead_a <= len(a) - 2 or (lead_a == len(a) - 1 and not t_a)
    if len(b) == 2 and op.operands[1] not in sliced and inside:
        return RowForm((lead_a, None), lead_a, op.attrs, whole=(None, None))
    return "its rows are products with all of the others"


def _reduction(op: Op, rows: int) -> Found:
    source, axes = op.operands[0].type, ints_attr(op.attrs, "axes")
    lead = lead_of(source.shape, rows)
    if lead is None:
        return f"its operand has no axes of {rows} rows"
    behind = tuple(axis - lead + 1 for axis in axes if axis >= lead)
    over = [axis for axis in axes if axis < lead]
    attrs = dict(op.attrs)
    if not over:
        attrs["axes"] = behind
        return RowForm((lead,), lead, attrs)
    if len(over) == lead and op.name == "reduce_sum":
        attrs["axes"] = (0, *behind)
        return RowForm((lead,), None, attrs)
    return "it combines rows"


def _batched(op: Op, rows: int, sliced: Collection[Value]) -> Found:
    data = op.operands[:1] if op.name in CONVOLUTIONS else op.operands
    if any(v.type.shape[0] != rows for v in data):
        return f"its images are not {rows}"
    if op.name in WEIGHT_GRADIENTS:
        return RowForm((1, 1), None, op.attrs)
    others = op.operands[len(data) :]
    if any(v in sliced for v in others):
        return "its weights are made of the rows"
    return RowForm((1,) * len(data) + (None,) * len(others), 1, op.attrs, whole=(None,) * len(op.operands))


def _along_axis(op: Op, rows: int) -> Found:
    leads = [lead_of(v.type.shape, rows) for v in op.operands]
    lead, axis = leads[0], int_attr(op.attrs, "axis")
    if lead is None or any(other != lead for other in leads):
        return f"its operands have no axes of {rows} rows in common"
    if axis < lead:
        return "it goes along the rows"
    return RowForm((lead,) * len(leads), lead, {**op.attrs, "axis": axis - lead + 1})


def _transpose(op: Op, rows: int) -> Found:
    perm = ints_attr(op.attrs, "perm")
    lead = lead_of(op.operands[0].type.shape, rows)
    if lead is None or perm[:lead] != tuple(range(lead)):
        return "it moves the axes of the rows"
    return RowForm((lead,), lead, {"perm": (0, *(axis - lead + 1 for axis in perm[lead:]))})


def _reshape(op: Op, rows: int) -> Found:
    source, shape = op.operands[0].type.shape, op.result.type.shape
    leads = lead_of(source, rows), lead_of(shape, rows)
    if leads[0] is None or leads[1] is None:
        return "it mixes the axes of the rows with others"
    return RowForm((leads[0],), leads[1], rest=shape[leads[1] :])


def _broadcast(op: Op, rows: int) -> Found:
    shape = op.result.type.shape
    lead = lead_of(shape, rows)
    found = None if lead is None else _operand(op.operands[0].type.shape, shape, lead)
    if lead is None or found is None:
        return "it repeats along some of the rows"
    return RowForm((found[0],), lead, rest=shape[lead:], whole=(found[1],))


def _slice(op: Op, rows: int) -> Found:
    source, shape = op.operands[0].type.shape, op.result.type.shape
    lead = lead_of(source, rows)
    starts, stops, steps = (ints_attr(op.attrs, name) for name in ("starts", "stops", "steps"))
    if lead is None or source[:lead] != shape[:lead] or any(step != 1 for step in steps[:lead]):
        return "it leaves rows out"
    attrs: dict[str, Attr] = {"starts": (0, *starts[lead:]), "steps": (1, *steps[lead:])}
    return RowForm((lead,), lead, {**attrs, "stops": (-1, *stops[lead:])})


def _pad(op: Op, rows: int) -> Found:
    lead = lead_of(op.operands[0].type.shape, rows)
    low, high = ints_attr(op.attrs, "low"), ints_attr(op.attrs, "high")
    if lead is None or any(low[:lead]) or any(high[:lead]):
        return "it adds rows"
    return RowForm((lead,), lead, {**op.attrs, "low": (0, *low[lead:]), "high": (0, *high[lead:])})


def attrs_of(op: Op, form: RowForm, rows: int) -> dict[str, Attr]:
    """The attributes of the op on a slice of so many rows."""
    attrs = dict(form.attrs)
    if form.rest is not None:
        attrs["shape"] = (rows, *form.rest)
    if op.name == "slice":
        stops = ints_attr(attrs, "stops")
        attrs["stops"] = (rows, *stops[1:])
    return attrs

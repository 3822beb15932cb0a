# SPDX-License-Identifier: Apache-2.0
"""Checked access to the axis and flag attributes that reductions, norms and scans share."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import OpError
from ...types import TensorType
from .op_def import Attrs


def only(operands: Sequence[TensorType]) -> TensorType:
    """The single operand. Raises OpError if there is another number of them."""
    if len(operands) != 1:
        raise OpError(f"expected one operand, got {len(operands)}")
    return operands[0]


def axis_of(attrs: Attrs, source: TensorType) -> int:
    """Attribute `axis`, in [0, rank). Raises OpError otherwise; negative axes are resolved by whoever made the op."""
    axis = attrs.get("axis")
    if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < source.rank:
        raise OpError(f"expected attribute `axis` from 0 to {source.rank - 1} for {source}, got {axis}")
    return axis


def axes_of(attrs: Attrs, source: TensorType) -> tuple[int, ...]:
    """Attribute `axes`: at least one axis, ascending, each in [0, rank). Raises OpError otherwise."""
    axes = attrs.get("axes")
    if isinstance(axes, tuple) and axes and all(type(a) is int and 0 <= a < source.rank for a in axes):
        chosen = tuple(a for a in axes if isinstance(a, int))
        if list(chosen) == sorted(set(chosen)):
            return chosen
    raise OpError(f"expected attribute `axes`: ascending axes, one or more, of {source}, got {axes}")


def flag_of(attrs: Attrs, name: str) -> bool:
    """A boolean attribute that must be there. Raises OpError otherwise."""
    flag = attrs.get(name)
    if not isinstance(flag, bool):
        raise OpError(f"expected attribute `{name}` to be true or false, got {flag}")
    return flag


def number_of(attrs: Attrs, name: str) -> float:
    """A numeric attribute that must be there. Raises OpError otherwise."""
    number = attrs.get(name)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise OpError(f"expected attribute `{name}` to be a number, got {number}")
    return float(number)

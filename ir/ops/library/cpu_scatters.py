# SPDX-License-Identifier: Apache-2.0
"""The CPU library kernels of scatters, and of rows added up by index: each update is looked at once by every thread, and those
of one place are combined one after another."""

from __future__ import annotations

from collections.abc import Sequence

from memc.ir.core import Op
from memc.ir.ops.library.cpu_sort_scan import number_of
from memc.ir.ops.shared.common import int_attr, str_attr
from memc.ir.ops.shared.op_def import LibraryKernel

SHORT = 32
"""Where an element of the result is one of up to so many updates, a generated kernel looks at all of them, and may be fused."""
CODES = {"none": 0, "add": 1, "mul": 2, "max": 3, "min": 4}
"""How kernels are told a reduction."""


def updates_of(op: Op) -> tuple[int, int]:
    """How many updates an element of the result may be given, and elements of the updates. Of scatters, with data or without."""
    indices, updates = (v.type for v in op.operands[-2:])
    if op.name.startswith("scatter_nd"):
        return indices.elements // indices.shape[-1], updates.elements
    return indices.shape[int_attr(op.attrs, "axis")], updates.elements


def takes_scatter(op: Op) -> bool:
    """Whether an op's updates are many."""
    each, elements = updates_of(op)
    return each > SHORT and elements > 0 and op.result.type.elements > 0


def _takes_data(op: Op) -> bool:
    """Sums and products of halves are rounded once, for which the result has no room."""
    rounds = op.attrs["reduction"] in ("add", "mul") and op.result.type.dtype.is_float
    return takes_scatter(op) and not (rounds and op.result.type.dtype.itemsize == 2)


def scatter_scalars(op: Op) -> Sequence[int | float]:
    """The axis, where there is one, the reduction, and what the bits of updates are."""
    own = (int_attr(op.attrs, "axis"),) if "axis" in op.attrs else ()
    return *own, CODES[str_attr(op.attrs, "reduction", tuple(CODES))], number_of(op.operands[-1].type.dtype)


def gather_scalars(op: Op) -> Sequence[int | float]:
    return int_attr(op.attrs, "axis"), number_of(op.operands[1].type.dtype)


def _scatter(name: str, whole: bool) -> LibraryKernel:
    return LibraryKernel(
        target="llvm",
        symbol=f"memc.cpu.{name}",
        supports=_takes_data if whole else takes_scatter,
        scalars=scatter_scalars,
        workspace=None,
        whole=whole,
    )


SCATTER_ELEMENTS_CPU = _scatter("scatter_elements", True)
SCATTER_ND_CPU = _scatter("scatter_nd", True)
ELEMENTS_COMBINE_CPU = _scatter("scatter_elements_combine", False)
ND_COMBINE_CPU = _scatter("scatter_nd_combine", False)

GATHER_GRAD_CPU = LibraryKernel(
    target="llvm",
    symbol="memc.cpu.gather_grad",
    supports=lambda op: len(op.operands) == 2,
    scalars=gather_scalars,
    workspace=None,
)
"""Rows added up by index, each once."""

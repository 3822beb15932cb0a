# SPDX-License-Identifier: Apache-2.0
"""The kernel that copies a tensor into a box of a larger one: the part of a concat that is not there already."""

from __future__ import annotations

import tvm
from tvm.script import from_source

from memc.ir.types import TensorType
from memc.runtime.codegen.expressions import STORED

TEMPLATE = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(operand: T.Buffer({shape}, "{dtype}"), target: T.Buffer({whole}, "{dtype}")):
    T.func_attr({{"tirx.noalias": True}})
    for {loops} in T.grid({extents}):
        with T.sblock("result"):
            {axes} = T.axis.remap("{kinds}", [{loops}])
            target[{to}] = operand[{axes}]
"""


def piece_kernel(operand: TensorType, result: TensorType, start: tuple[int, ...]) -> tvm.tirx.PrimFunc:
    """Writes `operand` into `result` from index `start` on; the rest of `result` is left as it is. Rank at least 1."""
    rank = operand.rank
    text = TEMPLATE.format(
        shape=f"({', '.join(map(str, operand.shape))},)",
        whole=f"({', '.join(map(str, result.shape))},)",
        dtype=STORED[operand.dtype],
        loops=", ".join(f"i{n}" for n in range(rank)),
        extents=", ".join(map(str, operand.shape)),
        axes=", ".join(f"v{n}" for n in range(rank)) + ("," if rank == 1 else ""),
        kinds="S" * rank,
        to=", ".join(f"v{n} + {start[n]}" for n in range(rank)),
    )
    if rank == 1:
        text = text.replace("v0, = T.axis.remap", "v0 = T.axis.remap").replace("operand[v0,]", "operand[v0]")
        text = text.replace("for i0 in T.grid", "for i0 in T.serial")
    return from_source(text)

# SPDX-License-Identifier: Apache-2.0
"""The kernel that copies a tensor into a box of a larger one: the part of a concat that is not there already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from memc.ir.types import TensorType
from memc.runtime.codegen.expressions import STORED
from memc.runtime.codegen.te_builder import INDEX_LIMIT


def piece_kernel(operand: TensorType, result: TensorType, axis: int) -> tvm.tirx.PrimFunc:
    """Writes `operand` into `result`, from an index on `axis` on that is its last argument; the rest of `result` is left as it
    is. Where the piece begins is no part of the kernel, so that all pieces of a size have one. Rank at least 1."""
    dtype = STORED[operand.dtype]
    # Not by TVM's script, whose parser takes 40 ms.
    with IRBuilder() as made:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True})
            source = T.arg("operand", T.buffer(operand.shape, dtype))
            target = T.arg("target", T.buffer(result.shape, dtype))
            start = T.arg("start", T.int64() if result.elements > INDEX_LIMIT else T.int32())
            with T.grid(*operand.shape) as loops:
                with T.sblock("result"):
                    index = listed(T.axis.remap("S" * operand.rank, listed(loops)))
                    to = [at + start if n == axis else at for n, at in enumerate(index)]
                    T.buffer_store(target, source[index[0] if operand.rank == 1 else tuple(index)], to)
    return made.get()


def listed(variables: Any) -> Sequence[Any]:
    """What TVM gives for several variables, or for one."""
    return [variables] if isinstance(variables, tirx.Var) else list(variables)

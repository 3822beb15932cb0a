# SPDX-License-Identifier: Apache-2.0
"""Functions that check what callers of a program give it: element type, shape, compactness, device and alignment.

Every function that TVM generates begins with such checks of its own, which take three quarters of the time to compile it. The
kernels of a program are called by the program alone, with tensors that it made, so only the caller's are checked: each once
in a run, before the first kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx

from memc.ir.types import TensorType


def check_of(type: TensorType, name: str) -> tvm.tirx.PrimFunc:
    """A function that raises an error unless its argument is a tensor of `type`, and does nothing else."""
    argument = tirx.decl_buffer(type.shape, type.dtype.numpy.name, name="argument")
    func = tirx.PrimFunc([argument], tirx.Evaluate(tirx.IntImm("int32", 0)))
    return func.with_attr("s_tir", True).with_attr("global_symbol", name)


def compiled_checks(types: Mapping[str, TensorType], target: tvm.target.Target) -> list[Any]:
    """A module with the checks of tensors of some types, by their names; none if there are no types."""
    if not types:
        return []
    functions = {name: check_of(type, name) for name, type in types.items()}
    return [tvm.tirx.build(tvm.ir.IRModule(functions), target=target, pipeline="default")]


def unchecked() -> tvm.ir.transform.PassContext:
    """The context in which functions are compiled without checks of their arguments."""
    return tvm.ir.transform.PassContext(config={"tirx.disable_assert": True})

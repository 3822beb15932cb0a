# SPDX-License-Identifier: Apache-2.0
"""memc: a memory-optimizing compiler for deep-learning models.

    >>> import memc
    >>> exe = memc.compile("model.onnx", "model.memc", dims={"batch": 1}).load()   # doctest: +SKIP
    >>> outputs = exe(x)                                                             # doctest: +SKIP

Names are loaded when first used, so that running an artifact needs only TVM's runtime and numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memc.benchmark import Benchmark, bench
    from memc.driver import Compilation, compile, run
    from memc.frontend.onnx import import_onnx
    from memc.ir.errors import MemcError
    from memc.ir.parser import parse
    from memc.passes.build_gradient import BuildGradient
    from memc.passes.manager import PassManager
    from memc.planning import Plan, Tensor, plan
    from memc.report import Report
    from memc.runtime.executable import Executable, load
    from memc.verification import verify

_HOME = {
    "Benchmark": "memc.benchmark",
    "BuildGradient": "memc.passes.build_gradient",
    "Compilation": "memc.driver",
    "Executable": "memc.runtime.executable",
    "MemcError": "memc.ir.errors",
    "PassManager": "memc.passes.manager",
    "Plan": "memc.planning",
    "Report": "memc.report",
    "Tensor": "memc.planning",
    "bench": "memc.benchmark",
    "compile": "memc.driver",
    "import_onnx": "memc.frontend.onnx",
    "load": "memc.runtime.executable",
    "parse": "memc.ir.parser",
    "plan": "memc.planning",
    "run": "memc.driver",
    "verify": "memc.verification",
}

__all__ = [
    "Benchmark",
    "BuildGradient",
    "Compilation",
    "Executable",
    "MemcError",
    "PassManager",
    "Plan",
    "Report",
    "Tensor",
    "bench",
    "compile",
    "import_onnx",
    "load",
    "parse",
    "plan",
    "run",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'memc' has no attribute {name!r}")

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

__version__: str

if TYPE_CHECKING:
    from memc.driver import Compilation, compile, run
    from memc.estimation import Estimate, estimate
    from memc.frontend.onnx import import_onnx
    from memc.ir.errors import (
        BudgetError,
        CheckError,
        DeviceError,
        DeviceMemoryError,
        InvalidError,
        MemcError,
        UnsupportedError,
        UsageError,
    )
    from memc.ir.text.parser import parse
    from memc.measure.benchmark import Benchmark, bench
    from memc.measure.verification import verify
    from memc.passes.manager import PassManager
    from memc.passes.training.build_gradient import BuildGradient
    from memc.picture.outputs import write_report
    from memc.planning import Plan, Tensor, plan
    from memc.report.compile_report import Report
    from memc.runtime.execute.executable import Executable
    from memc.runtime.execute.load import load

_HOME = {
    "Benchmark": "memc.measure.benchmark",
    "BudgetError": "memc.ir.errors",
    "BuildGradient": "memc.passes.training.build_gradient",
    "CheckError": "memc.ir.errors",
    "Compilation": "memc.driver",
    "DeviceError": "memc.ir.errors",
    "DeviceMemoryError": "memc.ir.errors",
    "Estimate": "memc.estimation",
    "Executable": "memc.runtime.execute.executable",
    "InvalidError": "memc.ir.errors",
    "MemcError": "memc.ir.errors",
    "PassManager": "memc.passes.manager",
    "Plan": "memc.planning",
    "Report": "memc.report.compile_report",
    "Tensor": "memc.planning",
    "UnsupportedError": "memc.ir.errors",
    "UsageError": "memc.ir.errors",
    "bench": "memc.measure.benchmark",
    "compile": "memc.driver",
    "estimate": "memc.estimation",
    "import_onnx": "memc.frontend.onnx",
    "load": "memc.runtime.execute.load",
    "parse": "memc.ir.text.parser",
    "plan": "memc.planning",
    "run": "memc.driver",
    "verify": "memc.measure.verification",
    "write_report": "memc.picture.outputs",
}

__all__ = [
    "Benchmark",
    "BudgetError",
    "BuildGradient",
    "CheckError",
    "Compilation",
    "DeviceError",
    "DeviceMemoryError",
    "Estimate",
    "Executable",
    "InvalidError",
    "MemcError",
    "PassManager",
    "Plan",
    "Report",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "bench",
    "compile",
    "estimate",
    "import_onnx",
    "load",
    "parse",
    "plan",
    "run",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "__version__":
        from importlib.metadata import version  # Slow to import.

        return version("memc")
    raise AttributeError(f"module 'memc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__")), "__version__"])

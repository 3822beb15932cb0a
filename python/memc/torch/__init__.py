# SPDX-License-Identifier: Apache-2.0
"""memc in PyTorch: training steps compiled whole, and memory that is planned once for every step of eager PyTorch.

>>> step = memc.torch.compile_step(model, "cross-entropy", optimizer, example=(x, y))  # doctest: +SKIP
>>> loss = step(x, y)                                   # doctest: +SKIP

>>> import memc.torch                                   # doctest: +SKIP
>>> with memc.torch.planned_memory() as planned:        # doctest: +SKIP
...     for x, y in loader:
...         with planned.step():
...             loss = train(x, y)
>>> print(planned.report())                             # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError("memc.torch: expected PyTorch, got none; pip install memc[torch]") from _error

from .decorator import planned
from .region import PlannedMemory as planned_memory

if TYPE_CHECKING:
    from .dynamo import backend
    from .memory_plan import TorchPlan, plan
    from .partition.partitioner import partitioner
    from .step import Step, compile_artifact, compile_step, load_step

__all__ = [
    "Step",
    "TorchPlan",
    "backend",
    "compile_artifact",
    "compile_step",
    "load_step",
    "partitioner",
    "plan",
    "planned",
    "planned_memory",
]

_PLACES = {
    "TorchPlan": "memory_plan",
    "backend": "dynamo",
    "executorch": "executorch",
    "partitioner": "partition.partitioner",
    "plan": "memory_plan",
}
"""Modules of names that are not in `step`."""


def __getattr__(name: str) -> Any:
    """What compiles: planned memory needs neither the compiler nor what it needs."""
    if name not in __all__ and name not in _PLACES:
        raise AttributeError(f"module 'memc.torch' has no attribute {name!r}")
    module = import_module(f".{_PLACES.get(name, 'step')}", __name__)
    return module if name == "executorch" else getattr(module, name)

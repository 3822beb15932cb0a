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
    from .partition.partitioner import partitioner
    from .step import Step, compile_artifact, compile_step, load_step

__all__ = [
    "Step",
    "backend",
    "compile_artifact",
    "compile_step",
    "load_step",
    "partitioner",
    "planned",
    "planned_memory",
]


def __getattr__(name: str) -> Any:
    """What compiles: planned memory needs neither the compiler nor what it needs."""
    if name not in __all__:
        raise AttributeError(f"module 'memc.torch' has no attribute {name!r}")
    home = {"backend": ".dynamo", "partitioner": ".partition.partitioner"}.get(name, ".step")
    return getattr(import_module(home, __name__), name)

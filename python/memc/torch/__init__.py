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

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError("memc.torch: expected PyTorch, got none; pip install memc[torch]") from _error

from .decorator import planned
from .dynamo import backend
from .region import PlannedMemory as planned_memory
from .step import Step, compile_artifact, compile_step, load_step

__all__ = ["Step", "backend", "compile_artifact", "compile_step", "load_step", "planned", "planned_memory"]

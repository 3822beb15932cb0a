# SPDX-License-Identifier: Apache-2.0
"""The phantom device: PyTorch's own CUDA build runs a script on a machine without a GPU. Its allocator does what it would do, its
kernels do nothing, and cuDNN plans for a described card."""

from __future__ import annotations

from .assume import Assume, assume
from .failures import Refused, ScriptOutOfMemory
from .process import Process
from .run import UNLIMITED, Reading, Script, run_in, run_readings, run_script

__all__ = [
    "UNLIMITED",
    "Assume",
    "assume",
    "Process",
    "Reading",
    "Refused",
    "Script",
    "ScriptOutOfMemory",
    "run_in",
    "run_readings",
    "run_script",
]

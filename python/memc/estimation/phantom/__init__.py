# SPDX-License-Identifier: Apache-2.0
"""The phantom device: PyTorch's own CUDA build runs a script on a machine without a GPU. Its allocator does what it would do, its
kernels do nothing, and cuDNN plans for a described card."""

from __future__ import annotations

from .failures import Refused, ScriptOutOfMemory
from .process import Process
from .run import UNLIMITED, Script, run_in, run_script

__all__ = ["UNLIMITED", "Process", "Refused", "Script", "ScriptOutOfMemory", "run_in", "run_script"]

# SPDX-License-Identifier: Apache-2.0
"""The phantom device: PyTorch's own CUDA build runs a script on a machine without a GPU. Its allocator does what it would do, its
kernels do nothing, and cuDNN plans for a described card."""

from __future__ import annotations

from .run import Script, run_script

__all__ = ["Script", "run_script"]

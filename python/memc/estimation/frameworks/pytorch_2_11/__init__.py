# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.11, eager, on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...onnx_graph import Node
from ..framework import Framework
from . import convolutions, recurrent, tensors, transformers
from .context import Context
from .convolutions import convolution_of
from .optimizers import OPTIMIZERS, Optimizer

RULES: Mapping[str, Callable[[Context, Node], None]] = {
    **tensors.RULES,
    **convolutions.RULES,
    **transformers.RULES,
    **recurrent.RULES,
}
"""By the ops of ONNX, and those that `recognize` makes of several."""

PYTORCH_2_11 = Framework("pytorch-2.11", RULES)

__all__ = ["OPTIMIZERS", "PYTORCH_2_11", "RULES", "Context", "Optimizer", "convolution_of"]

# SPDX-License-Identifier: Apache-2.0
"""PyTorch 1.2, whose allocator has the rules of later releases; the workspace of cuBLAS is its own."""

from __future__ import annotations

from ..allocators import Caching
from .framework import Framework
from .older import CONTEXT, WORKSPACE_LIMIT
from .pytorch_2_11 import RULES

PYTORCH_1_2 = Framework(
    "pytorch-1.2",
    RULES,
    Caching(),
    outside=CONTEXT,
    workspace_limit=WORKSPACE_LIMIT,
    matrix_workspaces=False,
    source="DNNMem (2020); workspaces as of cuDNN 9.19, up to 4 GiB",
)

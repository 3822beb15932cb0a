# SPDX-License-Identifier: Apache-2.0
"""PyTorch 1.2, whose allocator has the rules of later releases; the workspace of cuBLAS is its own. LSTM layers run one after another,
without tensor cores, for which weights would be laid out anew: cuDNN needs the gates of one of them."""

from __future__ import annotations

from functools import partial

from ..allocators import Caching
from .framework import Framework
from .older import CONTEXT, WORKSPACE_LIMIT
from .pytorch_2_11 import RULES
from .pytorch_2_11.recurrent import GATES, lstm


def _gates(matrices: int, steps: int, row: int, layers: int) -> int:
    return steps * row * GATES


PYTORCH_1_2 = Framework(
    "pytorch-1.2",
    {**RULES, "LSTM": partial(lstm, workspace_rule=_gates)},
    Caching(),
    outside=CONTEXT,
    workspace_limit=WORKSPACE_LIMIT,
    matrix_workspaces=False,
    source="DNNMem (2020); workspaces as of cuDNN 9.19, up to 4 GiB",
)

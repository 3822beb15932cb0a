# SPDX-License-Identifier: Apache-2.0
"""MXNet 1.5, bound symbolically: NNVM plans all blocks of a step before it runs, so that next to nothing lies idle;
recurrent layers are unrolled, and keep operands and results of four activations, the cell and its tanh."""

from __future__ import annotations

from ..allocators import Mxnet
from .framework import Framework
from .older import CONTEXT, WORKSPACE_LIMIT, both_kept, float_mask, lstm_of
from .pytorch_2_11 import RULES

MXNET_1_5 = Framework(
    "mxnet-1.5",
    {**RULES, "Dropout": float_mask, "LSTM": lstm_of(10, sums=True), "MaxPool": both_kept},
    Mxnet(kind=2),
    outside=CONTEXT,
    workspace_limit=WORKSPACE_LIMIT,
    matrix_workspaces=False,
    keeps_workspace=True,
    binds_gradients=True,
    names=False,
    source="DNNMem (2020); workspaces as of cuDNN 9.19, up to 4 GiB",
)

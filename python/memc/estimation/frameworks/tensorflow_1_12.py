# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 1.12 with growing memory: normalization and activations in place (DNNMem, figure 8), two temporaries of a convolution
(section 4.2), regions that double."""

from __future__ import annotations

from ..allocators import Bfc
from .framework import Framework
from .older import CONTEXT, WORKSPACE_LIMIT, both_kept, copied, in_place, lstm_of, two_masks, with_copies
from .pytorch_2_11 import RULES

TENSORFLOW_1_12 = Framework(
    "tensorflow-1.12",
    {
        **RULES,
        "BatchNormalization": in_place,
        "Clip": in_place,
        "Conv": with_copies,
        "Dropout": two_masks,
        "LSTM": lstm_of(0),
        "MaxPool": both_kept,
        "Relu": in_place,
        "Transpose": copied,
    },
    Bfc(),
    outside=CONTEXT,
    workspace_limit=WORKSPACE_LIMIT,
    matrix_workspaces=False,
    names=False,
    applies_at_once=True,
    source="DNNMem (2020); workspaces as of cuDNN 9.19, up to 4 GiB",
)

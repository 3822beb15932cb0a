# SPDX-License-Identifier: Apache-2.0
"""Framework models: what each op allocates, keeps for the backward pass, and when it lets go. One file or folder each."""

from __future__ import annotations

from collections.abc import Mapping

from .framework import Framework
from .mxnet_1_5 import MXNET_1_5
from .pytorch_1_2 import PYTORCH_1_2
from .pytorch_2_11 import PYTORCH_2_11
from .tensorflow_1_12 import TENSORFLOW_1_12

FRAMEWORKS: Mapping[str, Framework] = {
    each.name: each for each in (PYTORCH_2_11, PYTORCH_1_2, TENSORFLOW_1_12, MXNET_1_5)
}
"""By name; the first is the default."""

__all__ = ["FRAMEWORKS", "Framework"]

# SPDX-License-Identifier: Apache-2.0
"""The rules by optimizer."""

from __future__ import annotations

from collections.abc import Mapping

from .adafactor import ADAFACTOR
from .adam import ADAM, ADAMAX, ADAMW, NADAM, RADAM
from .adamw_8bit import ADAMW_8BIT
from .adaptive import ADADELTA, ADAGRAD, RMSPROP
from .momentum import LION, SGD
from .rule import UpdateRule

RULES: Mapping[str, UpdateRule] = {
    "sgd": SGD,
    "adam": ADAM,
    "adamw": ADAMW,
    "rmsprop": RMSPROP,
    "adagrad": ADAGRAD,
    "adadelta": ADADELTA,
    "adamax": ADAMAX,
    "nadam": NADAM,
    "radam": RADAM,
    "adafactor": ADAFACTOR,
    "lion": LION,
    "adamw8bit": ADAMW_8BIT,
}
"""All optimizers but `none`, which has no rule."""

# SPDX-License-Identifier: Apache-2.0
"""Replay of a step's memory requests at addresses that were planned beforehand (Sekiyama et al. 2018).

What one step asked an allocator for (`WatchedStep`) becomes a `ReplayPlan`: an offset in an arena for each block. Nothing here
needs a framework or a device.
"""

from __future__ import annotations

from .plan import NATIVE, ReplayPlan
from .plan_check import check_plan
from .plan_file import read_plan, write_plan
from .planner import make_plan
from .report import Fallbacks, ReplayReport
from .watched import NEVER, StreamWait, WatchedStep

__all__ = [
    "NATIVE",
    "NEVER",
    "Fallbacks",
    "ReplayPlan",
    "ReplayReport",
    "StreamWait",
    "WatchedStep",
    "check_plan",
    "make_plan",
    "read_plan",
    "write_plan",
]

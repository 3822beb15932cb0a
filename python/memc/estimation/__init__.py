# SPDX-License-Identifier: Apache-2.0
"""`memc estimate`: how much GPU memory a framework's job takes, before it runs.

Every source yields allocation `Events`; simulated allocators tell what they take.
"""

from __future__ import annotations

from .estimator import estimate
from .events import EventList, Events
from .result import Alternative, Estimate, OutOfMemory

__all__ = ["Alternative", "Estimate", "EventList", "Events", "OutOfMemory", "estimate"]

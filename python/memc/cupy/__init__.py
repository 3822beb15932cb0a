# SPDX-License-Identifier: Apache-2.0
"""Planned memory for CuPy: what a step asks for is served from an arena, at offsets that were planned after the first steps."""

from __future__ import annotations

from .region import PlannedMemory, planned_memory

__all__ = ["PlannedMemory", "planned_memory"]

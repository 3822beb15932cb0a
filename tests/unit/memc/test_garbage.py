# SPDX-License-Identifier: Apache-2.0
"""How often Python looks for garbage while memc compiles."""

from __future__ import annotations

import gc

from memc.garbage import ALLOCATIONS, few_collections


def test_thresholds_come_back() -> None:
    before = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold() == (ALLOCATIONS, *before[1:])
    assert gc.get_threshold() == before


def test_what_the_caller_set_is_kept() -> None:
    before = gc.get_threshold()
    try:
        for chosen in [(0, 10, 10), (2 * ALLOCATIONS, 5, 5)]:
            gc.set_threshold(*chosen)
            with few_collections():
                assert gc.get_threshold() == chosen
            assert gc.get_threshold() == chosen
    finally:
        gc.set_threshold(*before)

# SPDX-License-Identifier: Apache-2.0
"""Live bytes of storages that come and go, against a sum at each op."""

from __future__ import annotations

import random

import numpy as np
import pytest

from memc.ir.core import Value
from memc.ir.types import DType, TensorType
from memc.passes.placement.storages import MANY, LiveBytes, Storage


@pytest.mark.parametrize("changes", [1, 3, 40])
def test_live_bytes_are_the_sum_of_what_is_live(changes: int) -> None:
    """Few changes are added one by one, many in one sweep."""
    steps = 2 * MANY
    rng = random.Random(changes)
    live = LiveBytes(np.full(steps, 64, np.int64), 64)
    counted: list[Storage] = []
    for _ in range(6):
        for _ in range(changes):
            if counted and rng.random() < 0.4:
                live.take(counted.pop(rng.randrange(len(counted))))
                continue
            lower = rng.randrange(steps)
            size, upper = rng.randrange(300), rng.randrange(lower, steps) + 1
            kind = rng.choice(("arena", "arena", "fixed", "output"))
            root = Value("v", TensorType(DType.U8, (size,)))
            storage = Storage(root, size, lower, upper, kind == "fixed", kind == "output")
            live.add(storage)
            counted.append(storage)
        arena = [s for s in counted if not s.fixed and not s.output]
        expected = [64 + sum((s.size + 63) // 64 * 64 for s in arena if s.lower <= n < s.upper) for n in range(steps)]
        assert live.now().tolist() == expected

# SPDX-License-Identifier: Apache-2.0
"""Plans count bytes with footprints, space by space."""

from __future__ import annotations

import memc


def test_bytes_by_space() -> None:
    tensors = [
        memc.Tensor("a", 0, 2, 10),
        memc.Tensor("b", 1, 3, 20),
        memc.Tensor("c", 0, 1, 5, space="fast"),
        memc.Tensor("d", 1, 2, 7, space="fast"),
    ]
    found = memc.plan(tensors, capacity={"arena": 30, "fast": 7})
    assert found.footprint.to_dict() == {
        "peak": 37,
        "spaces": [
            {"name": "arena", "device": None, "bytes": 30, "kinds": {}, "lower_bound": 30},
            {"name": "fast", "device": None, "bytes": 7, "kinds": {}, "lower_bound": 7},
        ],
    }
    assert (found.peak, found.lower_bound, found.proven_optimal) == (37, 37, True)
    assert [(space.name, space.peak, space.capacity) for space in found.spaces] == [("arena", 30, 30), ("fast", 7, 7)]

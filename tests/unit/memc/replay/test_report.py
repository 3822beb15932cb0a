# SPDX-License-Identifier: Apache-2.0
"""What the report of a region says."""

from __future__ import annotations

import json

from memc.replay import Fallbacks, ReplayReport


def test_text_and_json() -> None:
    found = ReplayReport(
        state="replay",
        steps=12,
        watched_steps=2,
        replayed_steps=10,
        requests=1000,
        hits=990,
        native=7,
        fallbacks={"size": Fallbacks(3, "step 4, request 17: expected 512 bytes, got 1,024")},
        plans=1,
        arena_bytes=2048,
        lower_bound=2000,
        reserved_before=1000,
        reserved_after=880,
    )
    text = str(found)
    assert "requests  1,000: 990 hits, 7 native by plan, 3 fall-backs" in text
    assert "  3 size; first: step 4, request 17: expected 512 bytes, got 1,024" in text
    assert "2,048 B (2.00 KiB), 2.40 % above the lower bound of 2,000 B" in text
    assert "1,000 B before, 880 B with the arena: -12.0 %" in text
    data = json.loads(json.dumps(found.to_dict()))
    assert data["fallbacks"] == {"size": {"count": 3, "first": "step 4, request 17: expected 512 bytes, got 1,024"}}
    assert data["gap_percent"] == 2.4 and data["reserved_after"] == 880


def test_what_is_not_known_is_left_out() -> None:
    found = ReplayReport("watch", 1, 1, 0, 0, 0, note="no two steps in a row asked for the same")
    assert found.gap_percent == 0 and found.fallback_count == 0
    assert "reserved" not in str(found) and str(found).endswith("the same")

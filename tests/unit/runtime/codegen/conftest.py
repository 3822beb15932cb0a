# SPDX-License-Identifier: Apache-2.0
"""What tests of code generation share."""

from __future__ import annotations

import pytest

from memc.runtime.codegen.fallbacks import Retreats


@pytest.fixture(autouse=True)
def no_retreats(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have compilations fail where a kernel gives way to a plainer one, which computes the same: a fault of code generation would
    go unseen. Tests marked `retreats` are about that."""
    if request.node.get_closest_marker("retreats") is None:

        def refuse(retreats: Retreats) -> None:
            assert not retreats.notes, list(retreats.notes.values())

        monkeypatch.setattr(Retreats, "warn", refuse)

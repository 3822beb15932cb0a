# SPDX-License-Identifier: Apache-2.0
"""Files of plans: what is written is read, and what is of another kind or damaged is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memc.ir.errors import InvalidError
from memc.replay import ReplayPlan, StreamWait, WatchedStep, make_plan, read_plan, write_plan

ROWS = [(1000, 0, 0, 2), (2000, 0, 1, 3), (300, 1, 0, 7), (4000, 0, 0, 4), (50, 0, 0, -1)]


@pytest.fixture
def plan() -> ReplayPlan:
    step = WatchedStep.of(ROWS, [StreamWait(3, 0, 4, 1)])
    return make_plan(step, torch_version="2.11.0", device_kind="NVIDIA H200")


@pytest.fixture
def path(plan: ReplayPlan, tmp_path: Path) -> Path:
    found = tmp_path / "step.plan.json"
    write_plan(plan, found)
    return found


def test_a_plan_is_read_as_it_was_written(plan: ReplayPlan, path: Path) -> None:
    found = read_plan(path, torch_version="2.11.0", device_kind="NVIDIA H200", sequence=plan.sequence_hash)
    for name in ("nbytes", "streams", "threads", "freed", "offsets", "first_pred", "preds"):
        assert getattr(found, name).tolist() == getattr(plan, name).tolist()
    for name in ("arena_bytes", "lower_bound", "solver", "alignment", "torch_version", "device_kind", "waits"):
        assert getattr(found, name) == getattr(plan, name)


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "a plan"}, "format: expected memc-replay-plan, got 'a plan'"),
        ({"version": 2}, "version: expected 1, got 2"),
        ({"version": True}, "version: expected 1, got True"),
        ({"alignment": 256}, "alignment: expected a multiple of 512 bytes, got 256"),
        ({"alignment": "512"}, "alignment: expected a multiple of 512 bytes"),
        ({"sequence": "0"}, "sequence: expected [0-9a-f]{32} of its content, got '0'"),
        ({"digest": 7}, "digest: expected [0-9a-f]{32} of its content, got 7"),
        ({"solver": "best-fit"}, "digest"),
        ({"solver": 1}, "solver: expected text"),
        ({"torch": None}, "torch: expected text"),
        ({"more": 1}, "expected the keys .*, got others: 'more'"),
        ({"rows": [[1, 2]]}, r"rows: 0: expected 5 numbers, got \[1, 2\]"),
        ({"rows": 3}, "rows: expected a list"),
        ({"preds": [1.5]}, "preds: 0: expected -1 to 2"),
        ({"preds": "x"}, "preds: expected a list of numbers"),
        ({"arena_bytes": True}, "arena_bytes: 0: expected"),
        ({"waits": [[0, 0, 0]]}, "waits: 0: expected 4 numbers"),
    ],
)
def test_what_is_changed_is_refused(path: Path, fields: dict[str, Any], message: str) -> None:
    changed(path, **fields)
    with pytest.raises(InvalidError, match=f"step.plan.json: {message}") as caught:
        read_plan(path)
    assert "\n" not in str(caught.value) and str(caught.value).endswith("(memc estimate --plan)")


def test_a_plan_for_something_else_is_refused(plan: ReplayPlan, path: Path) -> None:
    with pytest.raises(InvalidError, match="torch: expected a plan for 2.12.0, got one for 2.11.0"):
        read_plan(path, torch_version="2.12.0")
    with pytest.raises(InvalidError, match="device: expected a plan for NVIDIA H100, got one for NVIDIA H200"):
        read_plan(path, device_kind="NVIDIA H100")
    with pytest.raises(InvalidError, match="sequence: expected a plan for the requests 00"):
        read_plan(path, sequence="00")
    with pytest.raises(InvalidError, match="alignment: expected a multiple of 1024 bytes, got 512"):
        read_plan(path, alignment=1024)


def test_files_that_are_no_plan_are_refused(path: Path, tmp_path: Path) -> None:
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InvalidError, match="expected a plan in JSON"):
        read_plan(path)
    path.write_text("[]")
    with pytest.raises(InvalidError, match="format"):
        read_plan(path)
    with pytest.raises(InvalidError, match="cannot read"):
        read_plan(tmp_path / "none")
    with pytest.raises(InvalidError, match="cannot write"):
        write_plan(make_plan(WatchedStep.of([])), tmp_path / "none" / "plan")

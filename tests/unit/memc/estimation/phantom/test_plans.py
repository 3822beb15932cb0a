# SPDX-License-Identifier: Apache-2.0
"""The plan of a script's step, made under PyTorch itself on the phantom device."""

from __future__ import annotations

from pathlib import Path

import pytest

from memc.estimation import estimate
from memc.replay import read_plan

pytestmark = pytest.mark.phantom

TRAIN = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    x = torch.randn(4096, 1024, device="cuda")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def test_the_plan_of_a_script(tmp_path: Path) -> None:
    script, path = tmp_path / "train.py", tmp_path / "step.plan.json"
    script.write_text(TRAIN)
    found = estimate(script, gpu="h200", alternatives=False, plan=path)
    plan = read_plan(path, device_kind="NVIDIA H200")
    assert plan.torch_version.startswith("2.11")
    assert found.plan is not None and found.plan.gap_percent == 0
    assert set(plan.threads.tolist()) == {0, 1} and set(plan.streams.tolist()) == {0}
    # Four activations of 16 MiB are live at once, and x, whose successor is asked for while it lives, has no place.
    assert plan.arena_bytes >= 4 * 16 * 2**20
    assert plan.nbytes[~plan.planned].tolist() == [16 * 2**20]
    assert found.plan.compact_reserved_bytes <= found.plan.native_reserved_bytes

# SPDX-License-Identifier: Apache-2.0
"""What a script's data or the time of kernels decides: over a package `torch` that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from memc.cli import main
from memc.estimation import estimate
from memc.estimation.gpus import gpu_named
from memc.estimation.phantom import Assume, Process, Script, assume, run_readings
from memc.ir.errors import UsageError

from .made_scripts import GOOD, MIB, script

SCALED = """
import torch
torch.start()
optimizer, scaler = torch.Optimizer(), torch.GradScaler()
for at in range(1000):
    torch.allocate((1 << 40) + at * 2**22, 2**20)
    scaler._maybe_opt_step(optimizer, {"found_inf_per_device": {}})
"""


def test_steps_that_a_gradient_scaler_skips(fake_torch: Path) -> None:
    """The larger of no skipped step and three is told; as many as are assumed otherwise."""
    path = script(SCALED)
    found = estimate(path, steps=2, gpu="h200", alternatives=False)
    assert found.requested_bytes == 5 * MIB
    notes = [note for note in found.assumed if "recording" not in note]
    assert notes == [
        "a gradient scaler skips steps whose gradients are not finite: 3 at first are taken to be such (--assume skipped=)",
        f"with another outcome of that {2 * MIB:,} to {6 * MIB:,} bytes are reserved",
    ]
    for skipped in (0, 1, 7):
        found = estimate(path, steps=2, gpu="h200", alternatives=False, assume={"skipped": skipped})
        assert found.requested_bytes == (2 + skipped) * MIB
        assert not any("outcome" in note for note in found.assumed)


def test_a_job_that_fits_only_without_skipped_steps_does_not(fake_torch: Path) -> None:
    path = script(
        SCALED.replace("allocate((", "tracker.limit < 2**42 and at > 2 and fail() or torch.allocate((").replace(
            "import torch", "import torch\ndef fail(): raise torch.OutOfMemoryError()"
        )
    )
    assert estimate(path, steps=2, memory=5 * MIB, alternatives=False, assume={"skipped": 0}).fits
    assert estimate(path, steps=2, memory=5 * MIB, alternatives=False).fits is False


def test_the_fastest_engines(fake_torch: Path) -> None:
    """The first are counted, and what the largest would take is told."""
    text = "import torch\ntorch.start()\ntorch.backends.cudnn.benchmark = True\n"
    path = script(text + "torch.allocate(1 << 40, (3 if torch.tracker.largest else 1) * 2**20)\ntorch.step()")
    found = estimate(path, steps=1, gpu="h200", alternatives=False)
    assert found.requested_bytes == MIB
    assert f"with the largest workspaces of cuDNN's engines {20 * MIB:,} bytes are reserved" in found.assumed
    found = estimate(path, steps=1, gpu="h200", alternatives=False, assume={"engines": "largest"})
    assert found.requested_bytes == 3 * MIB
    with Process(None, gpu_named("h200")) as process:
        readings = run_readings(process, Script(path, steps=1))
        assert [(each.bound, each.script.assume.engines) for each in readings] == [(False, None), (True, "largest")]


def test_a_plain_script_runs_once(fake_torch: Path) -> None:
    with Process(None, gpu_named("h200")) as process:
        (only,) = run_readings(process, Script(script(GOOD), steps=1))
    assert only.recording.assumed == () and not only.bound


def test_what_can_be_assumed(fake_torch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert assume({"nonzero": 0.5, "all": False}) == Assume(nonzero=0.5, all=False) and assume(None) == Assume()
    for values, message in (
        ({"nonzer": 1}, "assume: expected what can be assumed, got 'nonzer'; did you mean nonzero?"),
        ({"nonzero": 2}, "assume: nonzero: expected a share from 0 to 1, got 2"),
        ({"nonzero": float("nan")}, "assume: nonzero: expected a share from 0 to 1, got nan"),
        ({"all": 1}, "assume: all: expected true or false, got 1"),
        ({"skipped": True}, "assume: skipped: expected a whole number from 0 to 1000000, got True"),
        ({"engines": "fast"}, "assume: engines: expected first or largest, got 'fast'"),
    ):
        with pytest.raises(UsageError) as raised:
            assume(values)
        assert message in str(raised.value)
    path = script(SCALED)
    assert main(["estimate", path, "--gpu", "h200", "--steps", "1", "--assume", "skipped=2", "--json", "-"]) == 0
    assert f'"requested_bytes": {3 * MIB}' in capsys.readouterr().out
    for wrong in ("skipped", "=3", "skipped=1.5"):
        assert main(["estimate", path, "--assume", wrong]) == 2
    assert main(["estimate", path, "--assume", "skipped=1", "--assume", "skipped=2"]) == 2
    with pytest.raises(UsageError, match="^assume: expected with a .py script alone"):
        estimate("model.onnx", assume={"all": True})

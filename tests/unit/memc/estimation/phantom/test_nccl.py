# SPDX-License-Identifier: Apache-2.0
"""Groups of NCCL under PyTorch itself on the phantom device: their bytes, and what they hold. Figures are of an H200 with NCCL 2.28.9."""

from __future__ import annotations

from pathlib import Path

import pytest

from memc.estimation import Estimate, estimate

pytestmark = pytest.mark.phantom

GROUPS = """
import torch, torch.distributed as dist
x = torch.ones(1024, device="cuda")
dist.init_process_group("nccl", rank=0, world_size=1)
for each in [None] + [dist.new_group([0]) for _ in range(OTHERS)]:
    dist.all_reduce(x, group=each)
dist.destroy_process_group()
"""


def of(text: str, tmp_path: Path, **options: object) -> Estimate:
    """The estimate of a script, without settings for NCCL."""
    path = tmp_path / "train.py"
    path.write_text(text)
    return estimate(path, gpu="h200", alternatives=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "channels, others, nbytes",
    [
        ("", 0, 585_105_408),
        ("", 2, 1_400_897_536),
        ("4", 0, 207_618_048),
        ("16", 1, 387_973_120),
        ("1", 2, 211_812_352),
    ],
)
def test_bytes_of_communicators(
    channels: str, others: int, nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most of them at once."""
    monkeypatch.setenv("NCCL_MAX_NCHANNELS", channels) if channels else monkeypatch.delenv(
        "NCCL_MAX_NCHANNELS", raising=False
    )
    found = of(GROUPS.replace("OTHERS", str(others)), tmp_path, steps=0)
    assert found.breakdown["nccl"] == nbytes and sum(found.breakdown.values()) == found.device_bytes
    note = f"{nbytes:,} bytes of NCCL are modelled: as for groups of one rank on an H200, without buffers for others"
    assert note in found.assumed
    assert "nccl" not in of("import torch\ntorch.ones(3, device='cuda')", tmp_path, steps=0).breakdown


DDP = """
import time, torch, torch.distributed as dist
dist.init_process_group("nccl", rank=0, world_size=1)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, bias=False) for _ in range(4))).cuda()
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    optimizer.zero_grad()
    model(torch.zeros(1, 512, device="cuda")).sum().backward()
    optimizer.step()
    print("held", torch.cuda.memory_stats()["requested_bytes.all.current"], flush=True)
    time.sleep(0.5)  # In which the watchdog looks.
"""


def test_the_first_buckets_are_held_through_the_second_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """New ones replace them as it begins."""
    of(DDP, tmp_path, steps=4, show=True)
    held = [int(line.split()[1]) for line in capfd.readouterr().err.splitlines() if line.startswith("held ")]
    assert held[1] - held[0] == 4 * 512 * 512 * 4 and held[2] == held[0]

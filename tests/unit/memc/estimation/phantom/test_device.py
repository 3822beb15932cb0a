# SPDX-License-Identifier: Apache-2.0
"""PyTorch itself on the phantom device. The figures are an H200's, measured with the same PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memc.cli import main
from memc.estimation import Estimate, estimate
from memc.ir.errors import UnsupportedError

pytestmark = pytest.mark.phantom

ROOT = Path(__file__).resolve().parents[5]
MIB = 2**20

NETWORK = """
import torch, torch.nn as nn
BATCH = 8
model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    x, y = torch.randn(BATCH, 3, 128, 128, device="cuda"), torch.randint(0, 10, (BATCH,), device="cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def of(text: str, tmp_path: Path, **options: object) -> Estimate:
    """The estimate of a script."""
    path = tmp_path / "train.py"
    path.write_text(text)
    return estimate(path, gpu="h200", alternatives=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [1, 50, 53])
def test_jobs_take_what_they_took_on_a_gpu(number: int) -> None:
    """ResNet-18 trained, ResNet-50 run, and trained with expandable segments: no byte of difference."""
    job = json.loads((ROOT / "benchmarks/data/pytorch_h200_jobs.json").read_text())["jobs"][number]
    asked = {
        key: value for key, value in job.items() if key not in ("requested", "allocated", "reserved", "nvml", "alloc")
    }
    found = estimate(
        ROOT / "benchmarks/estimate_job.py",
        arguments=[json.dumps(asked)],
        steps=5 if job["mode"] == "train" else 0,
        gpu="h200",
        alloc_conf=job.get("alloc"),
        alternatives=False,
    )
    assert (found.requested_bytes, found.allocated_bytes, found.reserved_bytes) == (
        job["requested"],
        job["allocated"],
        job["reserved"],
    )
    assert found.confidence == "exact" and found.recorded["reserved"] == job["reserved"]
    assert abs(found.device_bytes / job["nvml"] - 1) < 0.002


def test_origins(tmp_path: Path) -> None:
    found = of(NETWORK, tmp_path)
    assert found.confidence == "exact" and found.peak_op is not None
    assert found.peak_op.startswith("aten::") and "backward, step" in found.peak_op
    parts = found.breakdown
    assert (
        parts["weights"] == 4 * (64 * 3 * 9 + 64 + 4 * 64 + 640 + 10) + 8
    )  # Two of batch normalization's, and its counter.
    assert parts["inputs"] >= 8 * 3 * 128 * 128 * 4 and parts["activations"] >= 2 * 8 * 64 * 128 * 128 * 4
    assert sum(parts.values()) == found.device_bytes


def test_memory_that_does_not_suffice(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(NETWORK)
    found = of(NETWORK, tmp_path, memory=700 * MIB)
    assert found.fits is False and found.out_of_memory is not None
    assert found.out_of_memory.op == "aten::cudnn_batch_norm (1, forward, step 1)"
    assert found.out_of_memory.requested_bytes == 8 * 64 * 128 * 128 * 4
    assert main(["estimate", str(path), "--memory", "700MiB", "-q"]) == 4


def test_the_largest_batch(tmp_path: Path) -> None:
    """That it fits, and that the next does not, is tried one by one."""
    found = of(NETWORK, tmp_path, memory=1500 * MIB, find_batch=("BATCH", 1, 64))
    largest = found.largest_batch
    assert largest is not None and 8 < largest < 64 and found.fits
    for batch in range(largest, largest + 3):
        text = NETWORK.replace("BATCH = 8", f"BATCH = {batch}")
        assert of(text, tmp_path, memory=1500 * MIB).fits is (batch == largest)


def test_sizes_that_depend_on_data_are_told(tmp_path: Path) -> None:
    text = NETWORK.replace("loss.backward()", "loss.backward(); x[x > 0]; x.nonzero(); torch.unique(y)")
    found = of(text, tmp_path, steps=1)
    assert found.confidence == "assumed"
    for op in ("aten::index", "aten::nonzero", "aten::_unique2"):
        assert any(note.startswith(f"{op} (") and "depends on data" in note for note in found.assumed), (
            op,
            found.assumed,
        )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch\ntorch.linalg.cholesky(torch.eye(4, device='cuda'))", "cusolverDn"),
        (
            "import torch\ntorch.compile(torch.nn.Linear(2, 2).cuda())(torch.zeros(1, 2, device='cuda'))",
            "torch.compile",
        ),
    ],
)
def test_what_the_device_lacks_is_named(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        of(text, tmp_path)


VARIANTS = {
    "float16 with a scaler": (
        "loss.backward()\n    optimizer.step()",
        "scaler.scale(loss).backward()\n    scaler.step(optimizer); scaler.update()",
    ),
    "checkpointing": ("model(x)", "torch.utils.checkpoint.checkpoint_sequential(model, 3, x, use_reentrant=False)"),
    "channels last": ("model(x)", "model(x.to(memory_format=torch.channels_last))"),
    "cudnn.benchmark": ("BATCH = 8", "BATCH = 8; torch.backends.cudnn.benchmark = True"),
    "reads of the device": (
        "print(loss.item())",
        "loss.cpu().tolist(); torch.cuda.synchronize(); torch.cuda.mem_get_info()",
    ),
    "workers": (
        "while True:\n    x, y =",
        "data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(64, 3)), 2, num_workers=2, pin_memory=True)\n"
        "for rows, in data:\n    rows.cuda(non_blocking=True)\n    x, y =",
    ),
    "another stream": ("loss.backward()", "s = torch.cuda.Stream(); x.record_stream(s); loss.backward()"),
}


def test_what_torch_all_finds_reads_as_true_and_nothing_else_does(tmp_path: Path) -> None:
    """Nor does what comes to the same place later."""
    check = "flag = (x == x).all(); assert flag and torch.all(x == x); del flag\n    assert not (x != x).any()"
    of(NETWORK.replace("loss.backward()", f"loss.backward()\n    {check}"), tmp_path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_loops_of_other_kinds_run(tmp_path: Path, variant: str) -> None:
    """PyTorch's own counts are those of the simulation, or the result says what differs."""
    old, new = VARIANTS[variant]
    assert old in NETWORK
    text = "import torch\nscaler = torch.amp.GradScaler('cuda')\n" + NETWORK.replace(old, new)
    found = of(text, tmp_path)
    for name in ("allocated", "requested", "reserved"):
        assert getattr(found, f"{name}_bytes") == found.recorded[name], (variant, name)


def test_recurrent_networks_run(tmp_path: Path) -> None:
    text = """
import torch
model = torch.nn.LSTM(32, 64, 2, batch_first=True, bidirectional=True, dropout=0.1).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    optimizer.zero_grad()
    model(torch.zeros(4, 20, 32, device="cuda"))[0].sum().backward()
    optimizer.step()
"""
    found = of(text, tmp_path)
    assert found.requested_bytes == found.recorded["requested"] and found.breakdown["weights"] > 0


DISTRIBUTED = """
import torch, torch.distributed as dist, os
dist.init_process_group("nccl")
assert dist.get_world_size() == 8 and dist.get_rank() == 0 and os.environ["LOCAL_RANK"] == "0"
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(8))).cuda()
WRAP
optimizer = torch.optim.AdamW(model.parameters())
while True:
    optimizer.zero_grad()
    model(torch.zeros(16, 1024, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_distributed_jobs_as_their_first_rank(tmp_path: Path) -> None:
    """Eight weights of 4 MiB: replicas have buckets of gradients besides, which are made anew after the first step; shards hold an eighth of weights, gradients and states."""
    plain = of(DISTRIBUTED.replace("WRAP", ""), tmp_path, world_size=8)
    ddp = of(
        DISTRIBUTED.replace("WRAP", "model = torch.nn.parallel.DistributedDataParallel(model, [0])"),
        tmp_path,
        world_size=8,
    )
    shard = "from torch.distributed.fsdp import fully_shard\nfor part in model: fully_shard(part)\nfully_shard(model)"
    fsdp = of(DISTRIBUTED.replace("WRAP", shard), tmp_path, world_size=8)
    assert "rank 0 of 8" in ddp.assumed and ddp.breakdown["nccl"] == 585_105_408
    assert 32 * MIB <= ddp.allocated_bytes - plain.allocated_bytes <= 64 * MIB
    assert fsdp.allocated_bytes < plain.allocated_bytes - 64 * MIB
    assert fsdp.requested_bytes == fsdp.recorded["requested"] and ddp.requested_bytes == ddp.recorded["requested"]

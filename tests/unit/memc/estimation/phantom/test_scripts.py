# SPDX-License-Identifier: Apache-2.0
"""Scripts as users have them, under PyTorch itself on the phantom device: what they read, hold, start and leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from memc.estimation import Estimate, estimate
from memc.ir.errors import UnsupportedError

pytestmark = pytest.mark.phantom


def of(text: str, tmp_path: Path, **options: object) -> Estimate:
    """The estimate of a script."""
    path = tmp_path / "train.py"
    path.write_text(text)
    return estimate(path, gpu="h200", alternatives=False, **options)  # type: ignore[arg-type]


READS = """
import torch
old = torch.tensor([7, 9] * 16, device="cuda")
at = old.data_ptr()
assert old.tolist() == [7, 9] * 16
del old
new = torch.empty(32, dtype=torch.int64, device="cuda")
assert new.data_ptr() == at and new.sum().item() == 0 and not new.any()
assert new.tolist() == [0] * 32
written = torch.arange(12000, dtype=torch.int32).cuda()
assert written[:3].cpu().tolist() == [0, 1, 2] and written[-1].item() == 11999
floats = torch.ones(3, device="cuda")
READ
"""


def test_what_is_read_of_the_device(tmp_path: Path) -> None:
    """A block that was freed leaves nothing behind; copies that a script may decide by are real, and told of."""
    text = READS.replace("READ", "floats.cpu(); floats.sum().item(); floats.double().mean().item()")
    found = of(text, tmp_path, steps=0)
    assert found.confidence == "assumed"
    assert sorted(note.split(" (")[0] for note in found.assumed) == ["aten::is_nonzero", "aten::item", "aten::to"]
    exact = "import torch\nfloats = torch.ones(3, device='cuda')\nfloats.cpu(); floats.sum().item(); floats.double().mean().item()"
    assert of(exact, tmp_path, steps=0).confidence == "exact"


INFERENCE = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(4))).cuda()
with torch.inference_mode():
    for data in [torch.zeros(64, 1024) for _ in range(3)]:
        result = model(data.to("cuda"))
"""


def test_what_a_model_that_is_run_holds(tmp_path: Path) -> None:
    """Weights without an optimizer, and inputs that come from the host. Module calls keep two inputs of linear layers, and the new result."""
    found = of(INFERENCE, tmp_path, steps=0)
    parts = found.breakdown
    assert (parts["weights"], parts["inputs"]) == (4 * 1024 * 1024 * 4, 64 * 1024 * 4)
    assert 0 < parts["activations"] <= 3 * 64 * 1024 * 4
    assert found.confidence == "exact" and sum(parts.values()) == found.device_bytes


TWO_USES = """
import torch
model = torch.nn.Linear(2048, 2048, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    x = torch.zeros(2, 2048, device="cuda")
    (model(x) + model(x)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_what_autograd_does_by_itself_is_backward(tmp_path: Path) -> None:
    """The sum of two gradients of a weight is no op of the script's."""
    found = of(TWO_USES, tmp_path)
    assert found.peak_op is not None and "(backward, step" in found.peak_op


SPAWNED = """
import torch
def work(queue):
    torch.zeros(3, device="cuda")
    queue.put(1)
if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    context.Process(target=work, args=(queue,)).start()
    queue.get()
"""


def test_other_processes_that_use_the_gpu_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="another process that uses the GPU.*--world-size$"):
        of(SPAWNED, tmp_path)


CHECKPOINTS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    model = torch.nn.Linear(16, 16).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    assert open("last.pt", "rb").read() == b"real"
    data = DataLoader(TensorDataset(torch.zeros(64, 16)), 4, num_workers=1, multiprocessing_context="spawn")
    for at, (x,) in enumerate(data):
        optimizer.zero_grad()
        model(x.cuda()).sum().backward()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
        assert set(torch.load("last.pt")) == {"model", "optimizer"}
        torch.save(model.state_dict(), f"step{at}.pt")
        optimizer.step()
"""


def test_checkpoints_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With workers that are started anew, too."""
    monkeypatch.chdir(tmp_path)
    Path("last.pt").write_bytes(b"real")
    assert of(CHECKPOINTS, tmp_path, steps=2).recorded["requested"] > 0
    assert Path("last.pt").read_bytes() == b"real"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.pt", "train.py"]


RANK = """
import sys, time, torch, torch.distributed as dist
def main(local, world_size):
    BEGIN
    dist.all_reduce(torch.ones(3, device=local))
    time.sleep(2)  # In which NCCL's monitor looks for errors of other ranks.
    assert "torch._dynamo" not in sys.modules
    assert (dist.get_rank(), dist.get_world_size()) == (5, 8)
    torch.cuda.set_device(local)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(700))).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, [local])
    optimizer = torch.optim.AdamW(model.parameters())
    everyone = [None] * world_size
    dist.all_gather_object(everyone, local)
    assert everyone == [5] * 8
    dist.barrier()
    while True:
        optimizer.zero_grad()
        model(torch.zeros(4, 16, device=local)).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    torch.multiprocessing.spawn(main, (torch.cuda.device_count(),), torch.cuda.device_count())
"""


@pytest.mark.parametrize(
    "begin",
    [
        'dist.init_process_group("gloo", rank=local, world_size=world_size)',
        'torch.distributed.device_mesh.init_device_mesh("cuda", (world_size,))',
    ],
)
def test_a_job_of_a_rank_that_is_not_the_first(tmp_path: Path, begin: str) -> None:
    """1400 parameters, of whose buckets the ranks agree."""
    found = of(RANK.replace("BEGIN", begin), tmp_path, world_size=8, rank=5)
    assert found.requested_bytes == found.recorded["requested"] and found.reserved_bytes == found.recorded["reserved"]
    assert any(note.startswith("rank 5 of 8") for note in found.assumed)
    gradients = 700 * (16 * 16 + 16) * 4
    assert found.breakdown["gradients"] >= gradients


GENERATES = """
import torch
kept = []
for step in range(8):
    kept.append(torch.zeros(2**20, device="cuda"))
    if torch.all(kept[-1] > 3):
        break
"""


def test_a_loop_that_ends_once_all_is_done(tmp_path: Path) -> None:
    """It may end at once or never: the larger is told. What asserts that all is as it should be runs where it is."""
    found = of(GENERATES, tmp_path, steps=0)
    assert found.requested_bytes > 8 * 4 * 2**20
    assert any(note.startswith("torch.all reads as false") for note in found.assumed)
    once = of(GENERATES, tmp_path, steps=0, assume={"all": True})
    assert 4 * 2**20 <= once.requested_bytes < 2 * 4 * 2**20
    checked = "import torch\nx = torch.ones(3, device='cuda')\nassert torch.all(x > 0) and bool((x > 0).all())\n"
    found = of(checked, tmp_path, steps=0)
    assert found.reserved_bytes == 2 * 2**20
    assert any(note.startswith("the script does not run where torch.all reads as false (") for note in found.assumed)
    assert any(note.startswith("torch.all reads as true") for note in found.assumed)


SEARCHES = """
import torch
x = torch.rand(1000, 1000, device="cuda")
assert len(x[x > 0.5]) == len(torch.nonzero(x)) == len(torch.masked_select(x, x > 0.5)) == COUNT
"""


def test_the_share_of_elements_that_are_not_zero(tmp_path: Path) -> None:
    for share, count in ((None, 0), (0.25, 250_000), (1, 1_000_000)):
        found = of(
            SEARCHES.replace("COUNT", str(count)), tmp_path, steps=0, assume={"nonzero": share} if share else None
        )
        said = "which is zero here" if not share else f"of which {share} are taken not to be zero"
        note = f"aten::nonzero (once): the size of its result depends on data, {said} (--assume nonzero=)"
        assert note in found.assumed and found.confidence == "assumed"


LOOP_WITH_SCALER = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters(), FUSED)
scaler = torch.amp.GradScaler("cuda")
taken = 0
while True:
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.zeros(8, 1024, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    taken += 1
    print(taken, len(optimizer.state), flush=True)
"""


def test_the_optimizer_s_states_come_after_skipped_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A fused optimizer is called, and has its states, whatever the gradients are."""
    text = LOOP_WITH_SCALER.replace("FUSED", "fused=False")
    of(text, tmp_path, steps=2, assume={"skipped": 2}, show=True)
    assert [line for line in capfd.readouterr().err.splitlines() if line[:1].isdigit()] == ["1 0", "2 0", "3 2"]
    of(LOOP_WITH_SCALER.replace("FUSED", "fused=True"), tmp_path, steps=2, assume={"skipped": 2}, show=True)
    assert [line for line in capfd.readouterr().err.splitlines() if line[:1].isdigit()] == ["1 2"]

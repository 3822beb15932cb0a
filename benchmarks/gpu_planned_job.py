# SPDX-License-Identifier: Apache-2.0
"""One row of `gpu_planned_memory.py`, in a process of its own: python gpu_planned_job.py ROW, as JSON; the row with what was measured is
printed."""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from linked_package import link_package


def training(name: str, batch: int) -> tuple[Callable[[], Any], Any]:
    """A step that returns its loss, and the model."""
    import estimate_job
    import torch

    torch.manual_seed(0)
    if name == "gpt2":
        import transformers

        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())

        def data():
            x = torch.randint(0, 50257, (batch, 128), device="cuda")
            return x, x.clone()

        def loss_of(m, x, y):
            return m(input_ids=x, labels=y).loss

    else:
        model, data, loss_of = estimate_job.job_of(name, batch)
    model = model.cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def step():
        x, y = data()
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model


class Plain:
    """Steps without planned memory, with the calls of those with it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def step(self):
        return Plain()

    def wait(self):
        pass


def region_of(row: dict[str, Any]) -> Any:
    if row["mode"] not in ("planned", "ahead"):
        return Plain()
    link_package()
    import memc.torch

    return memc.torch.planned_memory(plan=row["plan"] if row["mode"] == "ahead" else None)


def memory(row: dict[str, Any]) -> dict[str, Any]:
    """Peaks of steady steps, and with `planned` how they came to be."""
    import torch

    step, _ = training(row["model"], row["batch"])
    found: dict[str, Any] = {}
    with region_of(row) as region:
        for at in range(12):
            if at == 6:
                torch.cuda.synchronize()
                found["reserved_before"] = torch.cuda.memory_stats().get("reserved_bytes.all.peak", 0)
                torch.cuda.reset_peak_memory_stats()
            with region.step():
                step()
            if at < 6:
                region.wait()
        torch.cuda.synchronize()
        peaks = torch.cuda.memory_stats()
        found |= {name: peaks.get(f"{name}_bytes.all.peak", 0) for name in ("reserved", "allocated", "requested")}
        free, total = torch.cuda.mem_get_info()
        found["retries"] = peaks.get("num_alloc_retries", 0)
        if row["mode"] in ("planned", "ahead"):
            found["report"] = region.report().to_dict()
            if row["mode"] == "planned" and found["report"]["state"] == "replay":
                region.save(row["plan"])
    return found


def times(row: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of steps, in the host's time alone and until the device is done."""
    import torch

    step, _ = training(row["model"], row["batch"])
    host, whole = [], []
    with region_of(row) as region:
        for at in range(row["steps"] + 10):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            with region.step():
                step()
            middle = time.perf_counter()
            torch.cuda.synchronize()
            if at >= 10:
                host.append(1e3 * (middle - begin))
                whole.append(1e3 * (time.perf_counter() - begin))
            else:
                region.wait()
        report = region.report().to_dict() if row["mode"] == "planned" else None
    return {"host": statistics.median(host), "whole": statistics.median(whole), "report": report}


def bits(row: dict[str, Any]) -> dict[str, Any]:
    """Digests of losses and weights."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    step, model = training(row["model"], row["batch"])
    losses = []
    with region_of(row) as region:
        for at in range(row["steps"]):
            with region.step():
                losses.append(step().item())
            if at < 6:
                region.wait()
        report = region.report().to_dict() if row["mode"] == "planned" else None
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    text = hashlib.sha256(json.dumps(losses).encode()).hexdigest()[:16]
    return {"losses": text, "last_loss": losses[-1], "weights": digest.hexdigest()[:16], "report": report}


def cost(row: dict[str, Any]) -> dict[str, Any]:
    """Of a request and its free: the difference that the allocator makes shows between the modes."""
    import torch

    sizes = [4096 * (1 + at * 7919 % 997) for at in range(2000)]
    took = []
    with region_of(row) as region:
        for at in range(30):
            with region.step():
                begin = time.perf_counter()
                for size in sizes:
                    torch.empty(size, dtype=torch.uint8, device="cuda")
                took.append((time.perf_counter() - begin) / len(sizes) * 1e9)
            if at < 6:
                region.wait()
    return {"ns": min(took[10:])}


def main() -> None:
    """Of the row that is the argument."""
    import torch

    row = json.loads(sys.argv[1])
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print(json.dumps(row | {"memory": memory, "times": times, "bits": bits, "cost": cost}[row["part"]](row)))


if __name__ == "__main__":
    main()

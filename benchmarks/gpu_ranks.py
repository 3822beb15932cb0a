# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of PyTorch's on several GPUs: what each rank takes of its device, with and without planned memory.

    python benchmarks/gpu_ranks.py [--ranks 2] [--cases ddp "ddp view" fsdp2 collectives] [--steps 12] [--limit SECONDS] [--json FILE]

ResNet-50 with Adam, 32 images a rank. `collectives`: all-reduces of three groups, without a model. Figures are peaks of rank 0, in bytes;
"device" is what NVML says it has taken at the end. Losses and weights are compared as digests, over all ranks; `native` is run twice, since
kernels and NCCL may sum in any order. `memc estimate` of the same jobs: `estimate_ranks.py`.

It needs torch, torchvision and pynvml. Where memc is not installed, see `gpu_planned_memory.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

CASES = ("ddp", "ddp view", "fsdp2", "collectives")
MODES = ("native", "native again", "planned")


def taken(device: int) -> int:
    """Bytes of the device in use, by NVML; 0 without its package."""
    try:
        import pynvml
    except ImportError:
        return 0
    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(device)).used)


def wrapped(case: str, model: Any, rank: int) -> Any:
    import torch

    if case.startswith("ddp"):
        view = case == "ddp view"
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=view)
    from torch.distributed.fsdp import fully_shard

    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in layer:
            fully_shard(block)
    fully_shard(model)
    return model


def collectives() -> None:
    """Of the whole job, and of two groups more."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1024, device="cuda")
    everybody = list(range(dist.get_world_size()))
    for group in (None, dist.new_group(everybody), dist.new_group(everybody)):
        dist.all_reduce(x, group=group)


def train(case: str, planned: Any, rank: int, steps: int) -> tuple[list[float], str]:
    """Losses, and a digest of the rank's weights."""
    import torch
    import torchvision

    torch.manual_seed(0)
    model = wrapped(case, torchvision.models.resnet50().cuda(), rank)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    torch.manual_seed(rank + 1)
    losses = []
    for _ in range(steps):
        with contextlib.nullcontext() if planned is None else planned.step():
            x = torch.randn(32, 3, 224, 224, device="cuda")
            y = torch.randint(0, 1000, (32,), device="cuda")
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        del loss
        if planned is not None:
            planned.wait()
    digest = hashlib.sha256()
    for tensor in model.parameters():
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        digest.update(local.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return losses, digest.hexdigest()[:16]


def one(case: str, mode: str, steps: int) -> dict[str, Any]:
    """This process's rank of a job."""
    rank = int(os.environ["RANK"])
    before = taken(rank)
    import torch
    import torch.distributed as dist
    from linked_package import link_package

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    losses, weights, report = [], "", None
    with contextlib.ExitStack() as stack:
        planned = None
        if mode == "planned":
            link_package()
            import memc.torch

            planned = stack.enter_context(memc.torch.planned_memory())
        if case == "collectives":
            collectives()
        else:
            losses, weights = train(case, planned, rank, steps)
        torch.cuda.synchronize()
        report = None if planned is None else planned.report().to_dict()
        stats = torch.cuda.memory_stats()
        found = {name: stats[f"{name}_bytes.all.peak"] for name in ("requested", "allocated", "reserved")}
        found["now"] = stats["reserved_bytes.all.current"]
        dist.barrier()
        found["device"] = taken(rank) - before
    dist.destroy_process_group()
    return found | {"losses": losses, "weights": weights, "report": report, "name": torch.cuda.get_device_name()}


def run(case: str, mode: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All ranks of a job, each a process of its own. Raises RuntimeError with the first error's last line."""
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29541", "WORLD_SIZE": str(options.ranks)}
    environment = dict(os.environ) | settings | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    command = [sys.executable, __file__, "--one", case, mode, "--steps", str(options.steps)]
    processes = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(options.ranks)
    ]
    try:
        told = [process.communicate(timeout=options.limit) for process in processes]
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end within {options.limit} s") from None
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, told):
        if process.returncode:
            raise RuntimeError("; ".join(errors.strip().splitlines()[-6:]))
    return [json.loads(text.splitlines()[-1]) for text, _ in told]


def table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    """Print what was measured."""
    print(
        "| job | memory | requested | allocated | reserved at most | reserved at the end | device | hits | fall-backs |"
    )
    print("| --- | --- |" + " --: |" * 7)
    for case, modes in found.items():
        for mode, ranks in modes.items():
            row = ranks[0]
            cells = [f"{row[name]:,}" for name in ("requested", "allocated", "reserved", "now", "device")]
            if report := row["report"]:
                cells.append(f"{report['hits']:,} of {report['requests']:,}")
                cells.append(f"{sum(each['count'] for each in report['fallbacks'].values()):,}")
            print(f"| {case} | {mode} | {' | '.join(cells + [''] * (7 - len(cells)))} |")
        digests = {mode: [(rank["losses"], rank["weights"]) for rank in ranks] for mode, ranks in modes.items()}
        first = digests.get("native")
        for mode, other in digests.items():
            if mode != "native" and first is not None:
                print(f"{case}: {mode}: losses and weights {'the same bits' if other == first else 'DIFFER'}")


def main() -> int:
    """Run each case in each mode."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of each job")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("CASE", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*options.one, options.steps)))
        return 0
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    failed = False
    for case in options.cases:
        for mode in options.modes[:1] if case == "collectives" else options.modes:
            try:
                found.setdefault(case, {})[mode] = run(case, mode, options)
            except RuntimeError as error:
                failed = True
                print(f"{case} {mode}: {error}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(found))
    table(found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

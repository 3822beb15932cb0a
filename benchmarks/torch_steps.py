# SPDX-License-Identifier: Apache-2.0
"""Training steps by `memc.torch.compile_step` beside eager PyTorch and `torch.compile`, on a GPU: losses, time and memory; and 20
models on the CPU (torch_steps_cpu.py).

    python benchmarks/torch_steps.py prepare FOLDER [NAME ...]   # anywhere with PyTorch and memc: compiles for the GPU, without one
    python benchmarks/torch_steps.py run FOLDER --seconds 100    # with the GPU and PyTorch; memc from the tree is enough
    python benchmarks/torch_steps.py cpu FILE [NAME ...]         # anywhere with PyTorch and memc: what is found goes to a file of JSON
    python benchmarks/torch_steps.py cpu-table FILE

Steps of AdamW in f32 (TF32 off everywhere). `run` takes each artifact to a module with its own weights, runs five steps by memc and by
eager PyTorch on the same batches, then times each way. Memory: the peak that PyTorch's allocator has reserved, and for memc the bytes of
all its spaces; both without the batch.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from linked_package import link_package
from torch_steps_cpu import run_cpu, table

CHECKED = 5
"""Steps whose losses are compared."""


def vision(name: str, batch: int, side: int) -> Callable[[], Any]:
    def make() -> Any:
        import torch
        import torchvision

        net = getattr(torchvision.models, name)(weights=None)
        for module in net.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0

        def draw(number: int) -> Any:
            torch.manual_seed(number)
            return torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,))

        return net, draw

    return make


def language(layers: int, width: int, batch: int, length: int) -> Callable[[], Any]:
    def make() -> Any:
        import torch
        import transformers

        config = transformers.GPT2Config(
            n_layer=layers,
            n_embd=width,
            n_head=width // 64,
            n_positions=length,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        config.use_cache = False
        config._attn_implementation = "sdpa"

        class Language(torch.nn.Module):
            """Scores with the classes on axis 1."""

            def __init__(self) -> None:
                super().__init__()
                self.model = transformers.GPT2LMHeadModel(config)

            def forward(self, ids: Any) -> Any:
                return self.model(input_ids=ids)[0].transpose(1, 2)

        def draw(number: int) -> Any:
            torch.manual_seed(number)
            ids = torch.randint(0, config.vocab_size, (batch, length))
            return ids, ids.roll(-1, 1)

        return Language(), draw

    return make


MODELS: dict[str, Callable[[], Any]] = {
    "resnet50_b32": vision("resnet50", 32, 224),
    "vit_b_16_b32": vision("vit_b_16", 32, 224),
    "gpt2_b4_s512": language(12, 768, 4, 512),
    "mobilenet_v3_large_b64": vision("mobilenet_v3_large", 64, 224),
}


def prepare(folder: Path, names: list[str]) -> None:
    """Compile steps, and take the weights out of the artifacts."""
    import torch
    from gpu_artifacts import strip

    import memc.torch

    for name in names or MODELS:
        torch.manual_seed(0)
        net, draw = MODELS[name]()
        begin = time.perf_counter()
        optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
        target = folder / f"{name}.memc"
        compilation = memc.torch.compile_artifact(
            net, "cross-entropy", optimizer, example=draw(0), output=target, target="cuda", arch="sm_90"
        )
        size = strip(target)
        seconds = time.perf_counter() - begin
        print(f"{name}: arena {compilation.report.peak_bytes:,} B, {size:,} B, {seconds:.0f} s", flush=True)


def timed(call: Callable[[], Any], seconds: float) -> float:
    """Median milliseconds of a call, with the device waited for."""
    import torch

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(found)


def eager_step(net: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """A step of PyTorch's."""
    import torch

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def by_pytorch(net: Any, draw: Any, compiled: bool, seconds: float) -> dict[str, Any]:
    """Losses of the first steps, time and memory."""
    import torch

    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
    torch.cuda.reset_peak_memory_stats()
    step = eager_step(torch.compile(net) if compiled else net, optimizer)
    losses = [float(step(*(t.cuda() for t in draw(n)))) for n in range(CHECKED)]
    batch = [t.cuda() for t in draw(0)]
    spent = timed(lambda: step(*batch), seconds)
    return {
        "losses": losses,
        "ms": spent,
        "reserved": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.max_memory_allocated(),
    }


def by_memc(net: Any, draw: Any, artifact: Path, seconds: float) -> dict[str, Any]:
    """The same by an artifact, on the module's own weights."""
    import torch
    from gpu_artifacts import fill

    import memc.torch

    with tempfile.TemporaryDirectory() as temporary:
        fill(artifact, Path(temporary) / "whole.memc")
        net = net.cuda()
        optimizer = torch.optim.AdamW(net.parameters(), 1e-4)
        step = memc.torch.load_step(Path(temporary) / "whole.memc", net, optimizer)
        gc.collect()
        torch.cuda.empty_cache()
        left = torch.cuda.memory_allocated()
        losses = [float(step(*(t.cuda() for t in draw(n)))) for n in range(CHECKED)]
        batch = [t.cuda() for t in draw(0)]
        spent = timed(lambda: step(*batch), seconds)
        own = timed(lambda: step.executable(*batch), seconds / 2)
        held = {k: v for k, v in step.executable.statistics().items()}
        return {"losses": losses, "ms": spent, "own_ms": own, "bytes": held, "left_with_torch": left}


def run(folder: Path, seconds: float, names: list[str], with_compile: bool) -> None:
    """Each way of each model, as JSON lines."""
    link_package()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    each = 3.0
    end = time.perf_counter() + seconds
    for name in names or [n for n in MODELS if (folder / f"{n}.memc").is_dir()]:
        if time.perf_counter() > end:
            break
        row: dict[str, Any] = {"name": name}
        try:
            torch.manual_seed(0)
            net, draw = MODELS[name]()
            row["memc"] = by_memc(copy.deepcopy(net), draw, folder / f"{name}.memc", each)
            gc.collect()
            torch.cuda.empty_cache()
            row["eager"] = by_pytorch(copy.deepcopy(net), draw, False, each)
            gc.collect()
            torch.cuda.empty_cache()
            if with_compile and time.perf_counter() + 45 < end:
                row["compiled"] = by_pytorch(copy.deepcopy(net), draw, True, each)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:500]
        print(json.dumps(row), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", choices=("prepare", "run", "cpu", "cpu-table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if args.stage == "cpu":
        run_cpu(args.folder, args.names)
    elif args.stage == "cpu-table":
        print(table(args.folder))
    elif args.stage == "prepare":
        shutil.rmtree(args.folder, ignore_errors=True) if not args.names else None
        args.folder.mkdir(parents=True, exist_ok=True)
        prepare(args.folder, args.names)
    else:
        run(args.folder, args.seconds, args.names, args.compile)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""PyTorch's ways to take less memory for a training step, to stand beside those that `gpu_offload.py` measures of memc.

    python benchmarks/gpu_offload_torch.py [--model resnet50] [--batch 128] [--steps 20] [--compile] [--json FILE] [--markdown FILE]

A model of torchvision with cross entropy and SGD, in f32 with TF32 off: as it is; with `torch.autograd.graph.save_on_cpu`, which
copies what the backward pass needs to pinned memory of the host; with each block of its stages checkpointed; and, with `--compile`, what
`torch.compile` makes of it, without and with its own offloading of activations, on a stream of its own with waits moved to the end and
reloads ahead. That leaves to its user which tensors to offload: here the results of convolutions, from the first on, up to shares of their
bytes (`--offloaded`, percent); it skips those that it does not keep. Times are medians of steps, each until the device is idle. Peaks are what PyTorch's allocator has given out and reserved at most during these.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_compare import card
from torch_models import build

MIB = 2**20

OFFLOADING = (
    "enable_activation_offloading",
    "activation_offload_separate_stream",
    "activation_offload_sink_wait",
    "activation_reload_prefetch",
)
"""Switches in `torch._functorch.config`, all of which are needed for copies beside kernels."""


def checkpointed(model: Any) -> Any:
    """The model, each block of its stages run again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    for stage in model.children():
        if isinstance(stage, torch.nn.Sequential):
            for block in stage:
                inner = block.forward
                block.forward = lambda *given, inner=inner: checkpoint(inner, *given, use_reentrant=False)
    return model


def made(name: str) -> Any:
    torch.manual_seed(0)
    return build(name).cuda().train()


def stepper(
    model: Any, batch: int, saved: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Callable[[], None]:
    """One training step; `saved`: what its forward pass runs in."""
    torch.manual_seed(1)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (batch,), device="cuda")
    loss_of, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with saved():
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def measured(step: Callable[[], None], steps: int, seconds: float) -> dict[str, float]:
    """Median of the steps that fit into so many seconds, of five at least, and the peaks, in MiB."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < steps and (len(times) < 5 or time.perf_counter() < end):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    peaks = (torch.cuda.max_memory_allocated() / MIB, torch.cuda.max_memory_reserved() / MIB)
    return {"ms": statistics.median(times), "steps": len(times), "allocated": peaks[0], "reserved": peaks[1]}


def compiled_with_offload(model: Any, share: int) -> Any:
    """The model compiled with copies to the host of the first `share` percent of the bytes that may be kept."""
    import torch._functorch.config as switches
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    convolution = torch.ops.aten.convolution.default

    class Mark(CustomGraphPass):
        def __call__(self, graph: Any) -> None:
            nodes = graph.find_nodes(op="call_function", target=convolution)
            left = sum(node.meta["val"].nbytes for node in nodes) * share // 100
            for node in nodes:
                if (left := left - node.meta["val"].nbytes) >= 0:
                    node.meta["should_offload"] = True

        def uuid(self) -> str:
            return f"offload {share} %"

    from torch._dynamo.variables import streams

    streams.record_stream.register_fake(lambda tensor, stream: None)  # That of PyTorch 2.11 expects three operands.
    torch._dynamo.reset()
    for switch in OFFLOADING:
        setattr(switches, switch, True)
    config.joint_custom_post_pass = Mark()
    return torch.compile(model)


def ways(args: argparse.Namespace) -> dict[str, Callable[[], Callable[[], None]]]:
    """What makes the step of each way."""
    name, batch = args.model, args.batch

    def on_cpu() -> AbstractContextManager[Any]:
        return torch.autograd.graph.save_on_cpu(pin_memory=True)

    found: dict[str, Callable[[], Callable[[], None]]] = {
        "eager": lambda: stepper(made(name), batch),
        "save_on_cpu": lambda: stepper(made(name), batch, on_cpu),
        "checkpointed blocks": lambda: stepper(checkpointed(made(name)), batch),
    }
    if args.compile:
        found["compiled"] = lambda: stepper(torch.compile(made(name)), batch)
        for share in args.offloaded:

            def offloaded(share: int = share) -> Callable[[], None]:
                return stepper(compiled_with_offload(made(name), share), batch)

            found[f"compiled, {share} % offloaded"] = offloaded
    return found


def table(rows: dict[str, dict[str, Any]], args: argparse.Namespace) -> str:
    lines = [
        f"{args.model}, batch {args.batch}, f32. Card: {card()}; PyTorch {torch.__version__}",
        "",
        "| PyTorch | ms | times eager | allocated MiB | reserved MiB | steps |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    eager = rows.get("eager", {}).get("ms")
    for way, row in rows.items():
        if "note" in row:
            lines.append(f"| {way} | {row['note']} |")
            continue
        ratio = f"{row['ms'] / eager:.2f}" if eager else ""
        sizes = f"{row['allocated']:.0f} | {row['reserved']:.0f} | {row['steps']}"
        lines.append(f"| {way} | {row['ms']:.1f} | {ratio} | {sizes} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30, help="for the steps of each way")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--offloaded", nargs="*", type=int, default=(50, 100), help="percent, with --compile")
    parser.add_argument("--only", nargs="*", help="parts of the names of ways")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows: dict[str, dict[str, Any]] = {}
    chosen = {way: make for way, make in ways(args).items() if any(part in way for part in args.only or [""])}
    for way, make in chosen.items():
        try:
            rows[way] = dict(measured(make(), args.steps, args.seconds))
        except Exception as error:  # The other ways are worth more.
            rows[way] = {"note": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        torch.cuda.empty_cache()
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))
        if args.markdown:
            args.markdown.write_text(table(rows, args) + "\n")
    print(table(rows, args))


if __name__ == "__main__":
    main()

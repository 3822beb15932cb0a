# SPDX-License-Identifier: Apache-2.0
"""Peaks of a training step under memc's partitioner and under PyTorch's `activation_memory_budget`, as the CPU's allocator has them.

    python benchmarks/torch_partitioner.py --backend inductor --layers 32 --tokens 2048

A stack of decoder layers of width 256 with gated feed-forward parts, the setting of pytorch#197838. Prints a table of Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.profiler import ProfilerActivity, profile

import memc.torch

RATIOS = (1.0, 0.3, 0.2, 0.15, 0.1, 0.05)
SHARES = ("100%", "50%", "30%", "20%", "15%")


class Layer(nn.Module):
    """Attention and a gated feed-forward part, each with its residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, width] to the same."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Layers, and the mean square of the last one's result as loss."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A scalar."""
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def interpreted(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
    """A graph that runs node by node on PyTorch's kernels, inputs freed after their last use."""

    def run(args: list[Any]) -> Any:
        return torch.fx.Interpreter(module).boxed_run(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def measured(step: Callable[[], Any]) -> int:
    """The most bytes that the CPU's allocator has handed out at one time in a step, above those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    now = top = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        top = max(top, now)
    return top


def run(net: nn.Module, x: torch.Tensor, backend: str, partition: Any) -> tuple[int, float, list[torch.Tensor]]:
    """Peak bytes, seconds of a step and gradients. `partition`: None for PyTorch's."""
    torch._dynamo.reset()
    if backend == "inductor":
        options = None if partition is None else {"custom_partitioner_fn": partition}
        compiled = torch.compile(net, options=options)
    else:
        chosen = partition or min_cut_rematerialization_partition
        compiled = torch.compile(
            net, backend=aot_autograd(fw_compiler=interpreted, bw_compiler=interpreted, partition_fn=chosen)
        )

    def step() -> None:
        for p in net.parameters():
            p.grad = None
        compiled(x).backward()

    step()
    begin = time.perf_counter()
    step()
    seconds = time.perf_counter() - begin
    gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    for p in net.parameters():
        p.grad = None
    return measured(step), seconds, gradients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("inductor", "eager"), default="eager")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    torch.manual_seed(0)
    net = Decoder(args.layers, args.width, 4)
    x = torch.randn(1, args.tokens, args.width)
    net(x).backward()
    wanted = [p.grad.clone() for p in net.parameters() if p.grad is not None]

    def row(name: str, budget: str, found: tuple[int, float, list[torch.Tensor]]) -> None:
        apart = max(float((a - b).abs().max()) for a, b in zip(found[2], wanted))
        print(f"| {name} | {budget} | {found[0] / 2**20:.1f} | {found[1]:.2f} | {apart:.1e} |", flush=True)

    print("| partition | budget | measured peak MiB | s/step | gradients apart |\n| --- | --- | --: | --: | --: |")
    for ratio in RATIOS:
        with config.patch(activation_memory_budget=ratio):
            row("activation_memory_budget", f"{ratio:g}", run(net, x, args.backend, None))
    for share in SHARES:
        partition = memc.torch.partitioner(share)
        try:
            found = run(net, x, args.backend, partition)
        except Exception as error:
            print(f"| memc | {share} | {str(error).splitlines()[1]} | | |")
            continue
        limit = partition.partitions[0].budget
        row("memc", f"{share}: {limit / 2**20:.1f} MiB, {partition.partitions[0].by}", found)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Memory of feature maps as networks get deeper: figures 5 and 6 of Chen et al. 2016, by memc's static plans.

    python benchmarks/sublinear.py [--out FILE] [--plot FILE] [--depths 50,101,...] [--lengths 64,128,...]

Training graphs of pre-activation ResNets (batch 32, 224x224) and of an unrolled LSTM of four layers of 1,024 (batch 64,
inputs of 50, softmax over 5,000 at each step) are planned, not run. Five strategies, as in the paper:

    none         every value has bytes of its own
    in-place     results written over operands and views, but no other sharing
    sharing      in-place, and one arena in which values take turns
    drop bn-relu sharing, and the results of cheap ops recomputed (mirror{policy=cheap})
    sublinear    sharing, and Algorithm 3 (mirror{policy=sublinear})

Counted are the bytes that a step needs besides weights, gradients of weights, and inputs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memc.ir.build import IRBuilder
from memc.ir.core import Function, Op, Role, Value
from memc.ir.liveness import ALIGNMENT, arena_bytes, unoptimized_bytes
from memc.ir.module import Module
from memc.ir.op_queries import flops
from memc.ir.sizes import align
from memc.ir.types import DType, TensorType
from memc.passes.manager import PassManager
from memc.passes.placement.alias_plan import plan_aliases
from memc.passes.rewrite.canonicalize import remove_dead
from memc.passes.training.backward_pass import append_gradients, set_mirrors
from memc.passes.training.losses import softmax_cross_entropy
from memc.passes.training.mirror import added_flops, cheap_counts, sublinear_counts, training_peak

GIB = 2**30
STRATEGIES = ("none", "in-place", "sharing", "drop bn-relu", "sublinear")
STAGES = (3, 24, 36, 3)
"""Blocks per stage of the pre-activation ResNet-200 (He et al. 2016b); other depths keep the proportions."""
BATCH = 32
LSTM_BATCH, LSTM_INPUTS, LSTM_WIDTH, LSTM_LAYERS, LSTM_CLASSES = 64, 50, 1024, 4, 5000


class _Net:
    """A function being written, without data for its weights."""

    def __init__(self) -> None:
        self.function = Function([])
        self.module = Module([self.function])
        self.b = IRBuilder(self.module, self.function, self.function.ops)

    def param(self, name: str, shape: tuple[int, ...], role: Role = Role.WEIGHT, dtype: DType = DType.F32) -> Value:
        value = Value(name, TensorType(dtype, shape), role=role)
        self.function.params.append(value)
        return value

    def finish(self, loss: Value) -> Module:
        self.function.returns, self.function.result_names = [loss], ["loss"]
        return self.module


def blocks_of(depth: int) -> list[int]:
    """Blocks per stage for about `depth` layers: three in each block, and two more."""
    total = (depth - 2) / 3
    return [max(1, round(total * share / sum(STAGES))) for share in STAGES]


def resnet(depth: int) -> Module:
    """A pre-activation ResNet of bottleneck blocks with its loss; a layer is a convolution with norm and ReLU."""
    net = _Net()
    b = net.b
    count = 0

    def conv(x: Value, channels: int, size: int, stride: int = 1) -> Value:
        nonlocal count
        count += 1
        w = net.param(f"conv{count}", (channels, x.type.shape[1], size, size))
        pads = (size // 2,) * 4
        return b.op("conv", [x, w], group=1, strides=(stride, stride), pads=pads, dilations=(1, 1))

    def activated(x: Value) -> Value:
        channels = x.type.shape[1]
        scale, bias = (net.param(f"bn{len(net.function.params)}", (channels,)) for _ in range(2))
        return b.op("relu", [b.multi("batch_norm_training", [x, scale, bias], epsilon=1e-5).results[0]])

    x = conv(net.param("x", (BATCH, 3, 224, 224), Role.INPUT), 64, 7, 2)
    x = b.op("max_pool", [activated(x)], kernel=(3, 3), strides=(2, 2), pads=(1,) * 4, dilations=(1, 1))
    for stage, blocks in enumerate(blocks_of(depth)):
        width = 64 * 2**stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            h = activated(x)
            shortcut = x if block else conv(h, 4 * width, 1, stride)
            h = conv(h, width, 1)
            h = conv(activated(h), width, 3, stride)
            x = b.op("add", [conv(activated(h), 4 * width, 1), shortcut])
    pooled = b.op("reduce_mean", [activated(x)], axes=(2, 3), keepdims=False)
    logits = _linear(net, pooled, net.param("fc", (2048, 1000)), net.param("fc.bias", (1000,)))
    labels = net.param("labels", (BATCH,), Role.INPUT, DType.I64)
    return net.finish(softmax_cross_entropy(b, logits, labels))


def _linear(net: _Net, x: Value, w: Value, bias: Value) -> Value:
    return net.b.op("add", [net.b.op("matmul", [x, w], transpose_a=False, transpose_b=False), bias])


def lstm(length: int) -> Module:
    """An LSTM unrolled over `length` steps, step after step, with the mean cross entropy of all of them."""
    net = _Net()
    b = net.b
    size = LSTM_WIDTH
    cells = []
    for layer in range(LSTM_LAYERS):
        inputs = LSTM_WIDTH if layer else LSTM_INPUTS
        shapes = {"w": (inputs, 4 * size), "r": (size, 4 * size), "b": (4 * size,)}
        cells.append({name: net.param(f"{name}{layer}", shape) for name, shape in shapes.items()})
    w, bias = net.param("out", (size, LSTM_CLASSES)), net.param("out.bias", (LSTM_CLASSES,))
    h, c = ([net.param(f"{n}{i}", (LSTM_BATCH, size), Role.INPUT) for i in range(LSTM_LAYERS)] for n in ("h", "c"))

    def gate(sums: Value, number: int, activation: str) -> Value:
        part = {"starts": (0, number * size), "stops": (LSTM_BATCH, (number + 1) * size), "steps": (1, 1)}
        return b.op(activation, [b.op("slice", [sums], **part)])

    total: Value | None = None
    for step in range(length):
        x = net.param(f"x{step}", (LSTM_BATCH, LSTM_INPUTS), Role.INPUT)
        for layer, cell in enumerate(cells):
            recurrent = b.op("matmul", [h[layer], cell["r"]], transpose_a=False, transpose_b=False)
            sums = b.op("add", [_linear(net, x, cell["w"], cell["b"]), recurrent])
            i, f, o = (gate(sums, number, "sigmoid") for number in range(3))
            candidate = gate(sums, 3, "tanh")
            c[layer] = b.op("add", [b.op("mul", [f, c[layer]]), b.op("mul", [i, candidate])])
            x = h[layer] = b.op("mul", [o, b.op("tanh", [c[layer]])])
        labels = net.param(f"labels{step}", (LSTM_BATCH,), Role.INPUT, DType.I64)
        loss = softmax_cross_entropy(b, _linear(net, x, w, bias), labels)
        total = loss if total is None else b.op("add", [total, loss])
    assert total is not None
    return net.finish(b.op("div", [total, b.scalar(length, DType.F32)]))


def append_step(module: Module, counts: Mapping[Op, int]) -> None:
    """Gradients of the loss in all weights, which are returned and so lie outside the arena."""
    function = module.main
    set_mirrors(counts)
    gradients = append_gradients(module, function, function.returns[0], function.params_of(Role.WEIGHT))
    function.returns += gradients.values()
    function.result_names += [f"{weight.name}.grad" for weight in gradients]
    remove_dead(module, function)


def own_bytes(module: Module) -> int:
    """Bytes with results in place and views, but without sharing."""
    storages = {id(s): s for s in plan_aliases(module.main, refine=False).storage.values()}
    return sum(align(s.size, ALIGNMENT) for s in storages.values() if not s.fixed and not s.output)


def shared_bytes(module: Module) -> int:
    """Bytes of the arena that values share."""
    PassManager.parse("in-place,assign-addresses{solver=best-fit}").run(module)
    return arena_bytes(module.main)


def cheap(module: Module) -> Mapping[Op, int]:
    return cheap_counts(module.main)


def sublinear(module: Module) -> Mapping[Op, int]:
    return sublinear_counts(module.main, lambda plan: training_peak(module, module.main, plan))


@dataclass(frozen=True)
class Row:
    """Bytes of one network by strategy, and what the last two add to its forward flops."""

    size: int
    nbytes: dict[str, int]
    added: dict[str, float]
    seconds: float


def measure(build: Callable[[int], Module], size: int) -> Row:
    start = time.process_time()
    nbytes, added = {}, {}
    plain = build(size)
    forward = sum(flops(op) for op in plain.main.ops)
    append_step(plain, {})
    nbytes["none"] = unoptimized_bytes(plain.main)
    nbytes["in-place"] = own_bytes(plain)
    nbytes["sharing"] = shared_bytes(plain)
    for strategy, choose in (("drop bn-relu", cheap), ("sublinear", sublinear)):
        module = build(size)
        counts = choose(module)
        added[strategy] = added_flops(counts) / forward
        append_step(module, counts)
        nbytes[strategy] = shared_bytes(module)
    return Row(size, nbytes, added, time.process_time() - start)


def slope(rows: Sequence[Row], strategy: str) -> float:
    """Of the least-squares line through the logarithms of size and bytes."""
    points = [(math.log(row.size), math.log(row.nbytes[strategy])) for row in rows]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else math.nan


def table(title: str, unit: str, rows: Sequence[Row]) -> str:
    lines = [f"## {title}", "", f"| {unit} | " + " | ".join(f"{s}, GiB" for s in STRATEGIES)]
    lines[-1] += " | none / sharing | sharing / sublinear | added forward, drop | added forward, sublinear | CPU s |"
    lines.append("| --- " * (len(STRATEGIES) + 6) + "|")
    for row in rows:
        n = row.nbytes
        cells = [str(row.size), *(f"{n[s] / GIB:.2f}" for s in STRATEGIES)]
        cells += [f"{n['none'] / n['sharing']:.2f}", f"{n['sharing'] / n['sublinear']:.2f}"]
        cells += [f"{100 * row.added[s]:.1f} %" for s in ("drop bn-relu", "sublinear")]
        lines.append("| " + " | ".join([*cells, f"{row.seconds:.0f}"]) + " |")
    if len(rows) > 1:
        slopes = ", ".join(f"{s} {slope(rows, s):.2f}" for s in STRATEGIES)
        lines += ["", f"Log-log slope: {slopes}."]
    return "\n".join(lines) + "\n"


def plot(figures: Mapping[str, tuple[str, Sequence[Row]]], path: Path) -> None:
    """Both figures side by side, on logarithmic axes."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, len(figures), figsize=(6 * len(figures), 4.5), squeeze=False)
    for axis, (title, (unit, rows)) in zip(axes[0], figures.items()):
        for strategy in STRATEGIES:
            axis.loglog([r.size for r in rows], [r.nbytes[strategy] / GIB for r in rows], "o-", label=strategy)
        axis.set(title=title, xlabel=unit, ylabel="feature maps, GiB")
        axis.legend()
    plt.tight_layout()
    plt.savefig(path)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of feature maps as networks get deeper.")
    parser.add_argument("--depths", type=numbers, default=[50, 101, 200, 500, 1000])
    parser.add_argument("--lengths", type=numbers, default=[64, 128])
    parser.add_argument("--out", type=Path, help="write the tables here as well")
    parser.add_argument("--plot", type=Path, help="write a plot here; needs matplotlib")
    arguments = parser.parse_args()
    figures: dict[str, tuple[str, Sequence[Row]]] = {}
    texts = []
    for title, unit, build, sizes in (
        ("Pre-activation ResNet, batch 32, 224x224", "layers", resnet, arguments.depths),
        ("LSTM, 4 layers of 1,024, batch 64", "steps", lstm, arguments.lengths),
    ):
        if sizes:
            rows = [measure(build, size) for size in sizes]
            figures[title] = unit, rows
            texts.append(table(title, unit, rows))
            print(texts[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(texts))
    if arguments.plot:
        plot(figures, arguments.plot)


if __name__ == "__main__":
    main()

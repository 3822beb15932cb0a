# SPDX-License-Identifier: Apache-2.0
"""CuPy programs with and without planned memory, on a GPU: an MLP, and a seq2seq whose sentences have 10 to 50 words (Sekiyama et al. 2018).

    python benchmarks/gpu_cupy.py [--steps 200] [--programs mlp seq2seq] [--json FILE]

Each run is a process of its own, over CuPy's memory pool as it is, or with `memc.cupy.planned_memory`; the seq2seq's steps have the
length as their key. Both are plain CuPy: products, elementwise kernels and reductions, with backward passes written out. Bytes
are of the pool (`total_bytes`), in which the arena is, too: at the most, and at the end; milliseconds are the median step after the
first tenth, and the host's alone without waiting for the device. Losses must be the same, bit by bit. Where memc is not
installed, MEMC_CORE names its libmemc_core.so.

    python benchmarks/gpu_cupy.py --check     compares the gradients with differences, in numpy, without a GPU
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

MODES = ("pool", "planned")


class Mlp:
    """Three layers with ReLU, and a softmax over `classes`."""

    key = None

    def __init__(
        self, xp: Any, batch: int = 256, inner: int = 4096, inputs: int = 784, classes: int = 10, kind: str = "f4"
    ) -> None:
        rng = np.random.RandomState(0)
        sizes = [inputs, inner, inner, classes]
        self.xp, self.batch, self.inputs, self.classes, self.kind = xp, batch, inputs, classes, kind
        self.rng = np.random.RandomState(1)
        self.weights = [
            xp.asarray((rng.standard_normal((a, b)) / a**0.5).astype(kind)) for a, b in zip(sizes, sizes[1:])
        ]

    def draw(self, number: int) -> tuple[Any, ...]:
        """A step's data."""
        x = self.rng.standard_normal((self.batch, self.inputs)).astype(self.kind)
        return self.xp.asarray(x), self.xp.asarray(self.rng.randint(0, self.classes, self.batch))

    def gradients(self, x: Any, y: Any) -> tuple[Any, list[Any]]:
        """The loss, and the gradient of each weight."""
        xp = self.xp
        values = [x]
        for number, weight in enumerate(self.weights):
            out = values[-1] @ weight
            values.append(xp.maximum(out, 0) if number < len(self.weights) - 1 else out)
        loss, grad = softmax_loss(xp, values.pop(), y)
        found = []
        for weight in reversed(self.weights):
            below = values.pop()
            found.append(below.T @ grad)
            grad = (grad @ weight.T) * (below > 0)
        return loss, found[::-1]


class Seq2Seq:
    """An LSTM that reads a sentence and another that writes one of the same length, of `layers` layers each."""

    def __init__(
        self,
        xp: Any,
        batch: int = 64,
        inner: int = 512,
        words: int = 8000,
        layers: int = 2,
        kind: str = "f4",
        lengths: tuple[int, int] = (10, 50),
    ) -> None:
        rng = np.random.RandomState(0)
        self.xp, self.batch, self.inner, self.words, self.layers, self.kind = xp, batch, inner, words, layers, kind
        self.rng = np.random.RandomState(1)
        self.pick = random.Random(2)
        self.lengths = lengths
        shapes = [(words, inner)] * 2 + [(2 * inner, 4 * inner)] * (2 * layers) + [(inner, words)]
        self.weights = [xp.asarray((rng.standard_normal(shape) / shape[0] ** 0.5).astype(kind)) for shape in shapes]
        self.key = lengths[0]

    def draw(self, number: int) -> tuple[Any, ...]:
        """A step's data; the length is its key."""
        self.key = self.pick.randint(*self.lengths)
        shape = (self.key, self.batch)
        source, target = (self.xp.asarray(self.rng.randint(0, self.words, shape)) for _ in range(2))
        return source, target

    def gradients(self, source: Any, target: Any) -> tuple[Any, list[Any]]:
        """The loss, and the gradient of each weight."""
        xp, layers = self.xp, self.layers
        found = [xp.zeros_like(weight) for weight in self.weights]
        zero = xp.zeros((self.batch, self.inner), self.kind)
        state = [(zero, zero)] * layers
        read, kept_read = [], []
        for row in source:
            x = self.weights[0][row]
            state, kept = self.cells(x, state, 2)
            kept_read.append(kept)
            read.append(row)
        total, written = zero.sum(), []
        for number in range(len(target)):
            row = target[number - 1] if number else xp.zeros_like(target[0])
            state, kept = self.cells(self.weights[1][row], state, 2 + layers)
            top = state[-1][0]
            loss, grad = softmax_loss(xp, top @ self.weights[-1], target[number])
            total = total + loss
            found[-1] += top.T @ grad
            written.append((row, kept, grad @ self.weights[-1].T))
        grads = [(zero, zero)] * layers
        while written:
            row, kept, above = written.pop()
            grad, grads = self.cells_back(kept, grads, above, 2 + layers, found)
            scatter_add(xp, found[1], row, grad)
        while kept_read:
            grad, grads = self.cells_back(kept_read.pop(), grads, None, 2, found)
            scatter_add(xp, found[0], read.pop(), grad)
        return total, found

    def cells(self, x: Any, state: list[Any], first: int) -> tuple[list[Any], list[Any]]:
        """One step of all layers: their states (h, c), and what the backward pass needs."""
        xp, after, kept = self.xp, [], []
        for layer, (h, c) in enumerate(state):
            joined = xp.concatenate([x, h], 1)
            gates = joined @ self.weights[first + layer]
            i, f, o, g = (gates[:, k * self.inner : (k + 1) * self.inner] for k in range(4))
            i, f, o, g = (1 / (1 + xp.exp(-i)), 1 / (1 + xp.exp(-f)), 1 / (1 + xp.exp(-o)), xp.tanh(g))
            new = f * c + i * g
            bent = xp.tanh(new)
            x = o * bent
            after.append((x, new))
            kept.append((joined, i, f, o, g, c, bent))
        return after, kept

    def cells_back(
        self, kept: list[Any], grads: list[Any], above: Any, first: int, found: list[Any]
    ) -> tuple[Any, list[Any]]:
        """The gradients of the input and of the states before."""
        xp, before = self.xp, [None] * self.layers
        for layer in reversed(range(self.layers)):
            joined, i, f, o, g, c, bent = kept[layer]
            dh, dc = grads[layer]
            dh = dh if above is None else dh + above
            dc = dc + dh * o * (1 - bent * bent)
            gates = xp.concatenate(
                [dc * g * i * (1 - i), dc * c * f * (1 - f), dh * bent * o * (1 - o), dc * i * (1 - g * g)], 1
            )
            found[first + layer] += joined.T @ gates
            dx = gates @ self.weights[first + layer].T
            above = dx[:, : self.inner]
            before[layer] = (dx[:, self.inner :], dc * f)
        return above, before


def softmax_loss(xp: Any, scores: Any, labels: Any) -> tuple[Any, Any]:
    """The mean cross entropy, and its gradient."""
    scores = scores - scores.max(1, keepdims=True)
    shares = xp.exp(scores)
    shares /= shares.sum(1, keepdims=True)
    rows = xp.arange(len(labels))
    loss = -xp.log(shares[rows, labels]).mean()
    shares[rows, labels] -= 1
    shares /= len(labels)
    return loss, shares


def scatter_add(xp: Any, table: Any, rows: Any, values: Any) -> None:
    """table[rows] += values, in one order: a product with the rows as unit vectors, so that sums are the same each time."""
    chosen = (xp.arange(len(table))[:, None] == rows[None, :]).astype(values.dtype)
    table += chosen @ values


PROGRAMS: dict[str, Callable[..., Any]] = {"mlp": Mlp, "seq2seq": Seq2Seq}


def train(program: Any, data: tuple[Any, ...], rate: float = 0.01) -> Any:
    """A step of SGD; the loss."""
    loss, gradients = program.gradients(*data)
    while gradients:
        weight = program.weights[len(gradients) - 1]
        weight -= rate * gradients.pop()
    return loss


@contextlib.contextmanager
def region(planned: Any, key: Any) -> Iterator[None]:
    """A step of the region, if there is one."""
    if planned is None:
        yield
    else:
        with planned.step(key):
            yield


def run(name: str, mode: str, steps: int) -> dict[str, Any]:
    """One program in one mode, in this process."""
    import cupy
    from linked_package import link_package

    link_package()
    from memc.cupy import planned_memory

    pool = cupy.get_default_memory_pool()
    free_before = cupy.cuda.runtime.memGetInfo()[0]
    losses, host, whole, totals = [], [], [], []
    with contextlib.ExitStack() as stack:
        program = PROGRAMS[name](cupy)
        planned = stack.enter_context(planned_memory()) if mode == "planned" else None
        for number in range(steps):
            data = program.draw(number)
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
            with region(planned, program.key):
                loss = train(program, data)
                host.append(time.perf_counter() - begin)
                losses.append(float(loss))
                del loss
            whole.append(time.perf_counter() - begin)
            totals.append(pool.total_bytes())
            del data
        report = None if planned is None else planned.report().to_dict()
    cut = steps // 10
    return {
        "losses": losses,
        "most": max(totals),
        "after": max(totals[steps // 2 :]),
        "end": totals[-1],
        "device": free_before - cupy.cuda.runtime.memGetInfo()[0],
        "host_ms": 1000 * statistics.median(host[cut:]),
        "ms": 1000 * statistics.median(whole[cut:]),
        "report": report,
        "name": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "cupy": cupy.__version__,
    }


def check() -> None:
    """Gradients against differences, in double precision."""
    small = (Mlp(np, 4, 6, 5, 3, "f8"), Seq2Seq(np, 3, 4, 7, 2, "f8", (3, 5)))
    for program in small:
        data = program.draw(0)
        loss, found = program.gradients(*data)
        worst = 0.0
        for weight, gradient in zip(program.weights, found):
            for at in [(0, 0), (1, 2), tuple(size - 1 for size in weight.shape)]:
                was = weight[at]
                sides = []
                for move in (1e-6, -1e-6):
                    weight[at] = was + move
                    sides.append(program.gradients(*data)[0])
                weight[at] = was
                worst = max(worst, abs((sides[0] - sides[1]) / 2e-6 - gradient[at]))
        print(f"{type(program).__name__}: loss {loss:.6f}, gradients within {worst:.1e} of differences")
        assert worst < 1e-7


def table(found: dict[str, dict[str, Any]]) -> None:
    """Print what was measured, and whether losses are the same."""
    print(
        "| program | memory | pool at most | later half | device | ms | host ms | hits | native | fall-backs | plans |"
    )
    print("| --- | --- |" + " --: |" * 9)
    for name, modes in found.items():
        for mode, row in modes.items():
            report = row["report"]
            cells = [f"{row[key]:,}" for key in ("most", "after", "device")] + [
                f"{row['ms']:.2f}",
                f"{row['host_ms']:.2f}",
            ]
            if report:
                fallbacks = sum(each["count"] for each in report["fallbacks"].values())
                share = f"{100 * report['hits'] / max(1, report['requests']):.1f} %"
                cells += [share, f"{report['native']:,}", f"{fallbacks:,}", str(report["plans"])]
            else:
                cells += [""] * 4
            print(f"| {name} | {mode} | " + " | ".join(cells) + " |")
        same = modes["pool"]["losses"] == modes["planned"]["losses"]
        less = 100 * (modes["planned"]["after"] / modes["pool"]["after"] - 1)
        print(
            f"| {name} | losses {'the same' if same else 'DIFFER'}; pool {less:+.1f} % in the later half |" + " |" * 9
        )


def main() -> int:
    """Run each program in each mode in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("PROGRAM", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        check()
        return 0
    if options.one:
        print(json.dumps(run(*options.one, options.steps)))
        return 0
    found: dict[str, dict[str, Any]] = {}
    for name in options.programs:
        for mode in MODES:
            command = [sys.executable, __file__, "--one", name, mode, "--steps", str(options.steps)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.setdefault(name, {})[mode] = json.loads(done.stdout.splitlines()[-1])
    first = found[options.programs[0]]["pool"]
    print(f"CuPy {first['cupy']}, {first['name']}, {options.steps} steps\n")
    table(found)
    if options.json:
        options.json.write_text(json.dumps(found))
    return 0 if all(modes["pool"]["losses"] == modes["planned"]["losses"] for modes in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

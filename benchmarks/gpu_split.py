# SPDX-License-Identifier: Apache-2.0
"""memc's own CUDA kernels for products and convolutions, every way they have, beside cuDNN and cuBLASLt.

    python benchmarks/gpu_split.py compile KERNELS.cubin [--arch sm_90]      where nvcc is
    python benchmarks/gpu_split.py run KERNELS.cubin [--markdown FILE]       where the GPU and PyTorch are

For each of the calls below, f32 without TF32: microseconds of the library's fastest algorithm, with 64 MiB and 1 GiB of workspace,
of each tile and number of blocks that share it, and of minimal filtering where it is possible (with workspace, then without), in a
CUDA graph of 20 calls; and the largest errors of these, in units of the largest result, against PyTorch in f64.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_compare import card, start_device
from linked_package import link_package

TILES = ("32x32", "64x32", "32x64", "64x64", "128x64", "64x128")
SPLITS = (1, 2, 4, 8)
WINOGRAD = ("64x32", "32x64")
WORKSPACES = (64 << 20, 1 << 30)
CALLS = 20

# m, n, k, transpose_b, batch
PRODUCTS = [
    (128, 768, 768, False, 1),
    (128, 3072, 768, False, 1),
    (128, 768, 3072, False, 1),
    (197, 2304, 768, False, 1),
    (128, 128, 64, True, 12),
    (128, 64, 128, False, 12),
    (4096, 768, 768, False, 1),
]
# channels, filters, size, kernel, stride, images
CONVOLUTIONS = [
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 1),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 512, 7, 3, 1, 1),
    (1024, 256, 14, 1, 1, 1),
    (256, 1024, 14, 1, 1, 1),
    (512, 2048, 7, 1, 1, 1),
    (64, 96, 35, 3, 1, 1),
    (128, 32, 28, 3, 1, 1),
    (64, 64, 224, 3, 1, 1),
    (256, 256, 14, 3, 1, 32),
    (32, 32, 256, 3, 1, 32),
    (64, 32, 256, 3, 1, 32),
    (128, 64, 128, 3, 1, 32),
    (80, 192, 71, 3, 1, 32),
    (64, 64, 56, 3, 1, 32),
    (128, 128, 28, 3, 1, 32),
    (512, 512, 7, 3, 1, 32),
]
# The same, of gradients in the images.
GRADIENTS = [(64, 64, 56, 3, 1, 32), (128, 128, 28, 3, 1, 32), (256, 256, 14, 3, 1, 32), (512, 512, 7, 3, 1, 32)]

_sites = count()
"""A workspace that no call had before is a call site of its own."""


def run(args: argparse.Namespace) -> int:
    link_package()
    import torch
    import tvm_ffi

    from memc import native

    start_device()
    native.load()
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    tiles = " | ".join(f"{t}, {s}" for t, s in product(TILES, SPLITS))
    lines = [
        f"| call | library | library, 1 GiB | own tile | with | Winograd | with | in result | with | errors | {tiles} |",
    ]
    lines += ["| --- " + "| --: " * (lines[0].count("|") - 2) + "|"]
    shapes: list[Callable[[], Call]] = [
        *(partial(of_product, *p) for p in PRODUCTS),
        *(partial(of_convolution, *c) for c in CONVOLUTIONS),
        *(partial(of_gradient, *c) for c in GRADIENTS),
    ]
    libraries = [[library_time(shape(), workspace) for workspace in WORKSPACES] for shape in shapes]
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, args.kernels.read_bytes())
    for shape, library in zip(shapes, libraries):
        lines.append(row(shape(), library))
        print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text(f"{card()}\n\n" + "\n".join(lines) + "\n")
    return 0


class Call:
    """One call of a library kernel, on tensors of PyTorch."""

    def __init__(
        self, name: str, symbol: str, tensors: Sequence[Any], result: Any, expected: Any, scalars: Sequence[int]
    ) -> None:
        self.name, self.symbol, self.tensors, self.result, self.expected = name, symbol, tensors, result, expected
        self.scalars = scalars
        self.has_tiles = symbol != "memc.cuda.conv_transpose"
        self.has_winograd = (
            symbol != "memc.cuda.matmul" and list(scalars[6:9]) == [2, 1, 1] and tensors[1].shape[2] == 3
        )

    def function(self, workspace: int) -> Callable[[], None]:
        import torch
        import tvm_ffi

        scratch = torch.empty(workspace, dtype=torch.uint8, device="cuda")
        given = [tvm_ffi.from_dlpack(t) for t in (*self.tensors, self.result, scratch)]
        kernel = tvm_ffi.get_global_func(self.symbol)
        return lambda: kernel(*given, *self.scalars)

    def error(self) -> float:
        return float((self.result.double() - self.expected).abs().max() / self.expected.abs().max())


def of_product(m: int, n: int, k: int, transpose_b: bool, batch: int) -> Call:
    import torch

    lead = () if batch == 1 else (batch,)
    a = torch.randn(*lead, m, k, device="cuda")
    b = torch.randn(*lead, *((n, k) if transpose_b else (k, n)), device="cuda")
    c = torch.empty(*lead, m, n, device="cuda")
    expected = a.double() @ (b.mT if transpose_b else b).double()
    name = f"{batch} x {m} x {n} x {k}{', transposed' if transpose_b else ''}"
    return Call(name, "memc.cuda.matmul", [a, b], c, expected, [2, -1, 0, 0, int(transpose_b), -1, -1, 0])


def of_convolution(channels: int, filters: int, size: int, kernel: int, stride: int, images: int) -> Call:
    import torch

    x = torch.randn(images, channels, size, size, device="cuda")
    w = torch.randn(filters, channels, kernel, kernel, device="cuda")
    bias = torch.randn(filters, device="cuda")
    pad = kernel // 2
    expected = torch.nn.functional.conv2d(x.double(), w.double(), bias.double(), stride, pad)
    y = torch.empty(expected.shape, device="cuda")
    name = f"{images} x {channels} to {filters}, {size} x {size}, kernel {kernel}, stride {stride}"
    scalars = [3, 2, -1, 0, 0, 1, 2, stride, stride, pad, pad, 1, 1]
    return Call(name, "memc.cuda.conv", [x, w, bias], y, expected, scalars)


def of_gradient(channels: int, filters: int, size: int, kernel: int, stride: int, images: int) -> Call:
    import torch

    call = of_convolution(channels, filters, size, kernel, stride, images)
    x, w, _ = call.tensors
    y = torch.randn_like(call.result)
    expected = torch.nn.grad.conv2d_input(x.shape, w.double(), y.double(), stride, kernel // 2)
    scalars = [2, -1, *call.scalars[2:]]
    return Call(f"gradient of {call.name}", "memc.cuda.conv_transpose", [y, w], x, expected, scalars)


def microseconds(function: Callable[[], None]) -> float:
    """Of one call, in a graph of some."""
    import torch
    import tvm_ffi

    function()  # Sets up what a capture cannot.
    torch.cuda.synchronize()

    def some() -> None:
        for _ in range(CALLS):
            function()

    launch = tvm_ffi.get_global_func("memc.cuda.capture")(0, some)
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / CALLS)
    return min(times)


def choices() -> set[str]:
    import tvm_ffi

    return {line.strip() for line in tvm_ffi.get_global_func("memc.cuda.choices")(0).splitlines()}


def library_time(call: Call, workspace: int) -> tuple[float, list[str]]:
    """Microseconds, and the words of the call site, the first its bytes, with what was chosen."""
    before, own = choices(), workspace + next(_sites)
    taken = microseconds(call.function(own))
    (line,) = choices() - before
    return taken, [str(own), *line.split()]


def row(call: Call, library: Sequence[tuple[float, list[str]]]) -> str:
    known, words = library[0][1][0], library[0][1][1:]

    def best(ways: Iterable[tuple[str, int, int, int]]) -> tuple[str, str, float, list[str]]:
        """The least time and its way, the largest error, and all times."""
        times: dict[str, float] = {}
        worst = 0.0
        for name, number, splits, kind in ways:
            times[name] = time_of(call, known, words, (number, splits, kind))
            if times[name] < float("inf"):
                worst = max(worst, call.error()) if worst == worst else worst
        least = min(times, key=lambda way: times[way], default="")
        shown = {name: f"{t:.1f}" if t < float("inf") else "" for name, t in times.items()}
        if not shown.get(least):
            return "", "", 0.0, list(shown.values())
        return shown[least], least, worst, list(shown.values())

    tiles = ((f"{name}, {s}", n, s, 2) for (n, name), s in product(enumerate(TILES), SPLITS) if call.has_tiles)
    time, way, error, all_times = best(tiles)
    cells = [call.name, *(f"{taken:.1f}" for taken, _ in library), time, way]
    errors = [f"{error:.1e}"]
    for place in (0, 1):  # Of the transformed weights.
        works = ((name, n, place, 3) for n, name in enumerate(WINOGRAD) if call.has_winograd)
        time, way, error, _ = best(works)
        cells += [time, way]
        errors.append(f"{error:.1e}")
    cells += [", ".join(errors), *all_times]
    return "| " + " | ".join(cells) + " |"


def time_of(call: Call, known: str, words: Sequence[str], way: tuple[int, int, int], tables: int = 0) -> float:
    """Microseconds of one way, by a call site that is told to take it, with so many `tables` of sums; infinite for a way that
    cannot be taken."""
    import tvm_ffi

    own = WORKSPACES[0] + next(_sites)
    key = [str(own) if word == known else word for word in words[:32]]
    number, splits, kind = way
    told = " ".join(map(str, [*key, number, splits, tables, *[0] * 5, kind, 0]))
    tvm_ffi.get_global_func("memc.cuda.remember")(0, told)
    call.result.fill_(float("nan"))
    time = microseconds(call.function(own))
    return time if told in choices() else float("inf")


def compile_kernels(args: argparse.Namespace) -> int:
    from memc.runtime.codegen.cuda_kernels import own_kernels

    args.kernels.write_bytes(own_kernels(args.arch))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["compile", "run"])
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    return compile_kernels(args) if args.command == "compile" else run(args)


if __name__ == "__main__":
    sys.exit(main())

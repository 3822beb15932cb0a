# SPDX-License-Identifier: Apache-2.0
"""Gradients in the weights of convolutions with few results, by memc's own kernels (patch_sums.cu), beside the libraries'.

    python benchmarks/gpu_split.py compile KERNELS.cubin [--arch sm_90]      where nvcc is
    python benchmarks/gpu_sums.py KERNELS.cubin [--markdown FILE]            where the GPU and PyTorch are

For each of the calls below, f32 without TF32: microseconds of the libraries' fastest way with 64 MiB of workspace, of what memc takes
with its own, and of each tile and number of tables, in a CUDA graph of 20 calls; what reading images and gradient once takes at
4.2 TB/s; and the largest error of memc's own, in units of the largest result, against PyTorch in f64.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_compare import card, start_device
from gpu_split import Call, library_time, of_convolution, time_of
from linked_package import link_package

TILES = {8: "64x64", 9: "32x32", 10: "64x32", 11: "32x64"}
TABLES = (4, 8, 16, 32, 64, 96)
SPLITS = 8
PATCHES = 4
"""What word 8 of a choice says of these kernels."""

BANDWIDTH = 4.2e6
"""Bytes of a microsecond."""

# channels, filters, size, kernel, stride, images
CALLS = [
    (3, 32, 224, 3, 2, 32),
    (3, 64, 224, 7, 2, 1),
    (3, 64, 224, 7, 2, 32),
    (3, 64, 224, 7, 2, 128),
    (32, 16, 112, 1, 1, 32),
    (16, 48, 112, 1, 1, 32),
    (48, 24, 56, 1, 1, 32),
    (24, 72, 56, 1, 1, 7),
    (24, 72, 56, 1, 1, 32),
    (72, 40, 28, 1, 1, 32),
    (40, 120, 28, 1, 1, 32),
    (120, 40, 28, 1, 1, 3),
    (64, 64, 56, 1, 1, 32),
    (64, 256, 56, 1, 1, 32),
    (32, 32, 149, 3, 1, 32),
    (16, 16, 225, 3, 1, 2),
]


def of_weights(channels: int, filters: int, size: int, kernel: int, stride: int, images: int) -> Call:
    import torch

    call = of_convolution(channels, filters, size, kernel, stride, images)
    x, w, _ = call.tensors
    g = torch.randn_like(call.result)
    expected = torch.nn.grad.conv2d_weight(x.double(), w.shape, g.double(), stride, kernel // 2)
    scalars = [2, -1, *call.scalars[2:]]
    return Call(call.name, "memc.cuda.conv_grad_weight", [x, g], torch.empty_like(w), expected, scalars)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    link_package()
    import torch
    import tvm_ffi

    from memc import native

    start_device()
    native.load()
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    ways = list(product(TILES, TABLES))
    names = " | ".join(f"{TILES[tile]}, {tables}" for tile, tables in ways)
    lines = [f"| call | read once | libraries | memc | error | {names} |"]
    lines += ["| --- " + "| --: " * (lines[0].count("|") - 2) + "|"]
    libraries = [library_time(of_weights(*shape), 64 << 20) for shape in CALLS]
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, args.kernels.read_bytes())
    for shape, (taken, words) in zip(CALLS, libraries):
        call = of_weights(*shape)
        read = sum(t.numel() * t.element_size() for t in call.tensors) / BANDWIDTH
        own = library_time(call, 64 << 20)[0]
        cells = [call.name, f"{read:.1f}", f"{taken:.1f}", f"{own:.1f}", f"{call.error():.1e}"]
        for tile, tables in ways:
            time = time_of(call, words[0], words[1:], (tile, SPLITS, PATCHES), tables)
            if time < float("inf") and not call.error() < 1e-4:
                raise AssertionError(f"{call.name}: {TILES[tile]}, {tables} tables: an error of {call.error():.1e}")
            cells.append(f"{time:.1f}" if time < float("inf") else "")
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text(f"{card()}\n\n" + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Make the tables of cuDNN's workspaces that `memc estimate` uses, without a GPU.

    python scripts/cudnn_workspaces.py CUDNN MODELS ... [--only f32|tf32|f16|bf16] [--channels-last | --most]

CUDNN is the folder `lib` of the wheel nvidia-cudnn-cu13 9.19. It plans for a GPU that is only described (an H200): the heuristics'
first engine that PyTorch would take, in f32 with TF32 and without, in f16 and bf16, for every convolution of the models and of a U-Net
of 64 channels at 256 pixels, at the batch sizes of BATCHES. MODELS are ONNX models, their batch open as `batch`, or lists of convolutions
as `scripts/torchvision_convolutions.py` writes them. `--channels-last`: of tensors in that layout; `--most`: the largest workspace of all
engines, which `cudnn.benchmark` tries once. Engines that use cuBLASLt are offered only if that
can be loaded; a library of its functions that do nothing takes its place. It needs gcc. The tables are written into
`python/memc/estimation/data/`.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memc.estimation.frameworks.pytorch_2_11 import convolution_of
from memc.estimation.onnx_graph import read_onnx
from memc.estimation.workspaces import Convolution, key_of

BATCHES = [*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256]
DATA = Path(__file__).parents[1] / "python/memc/estimation/data"

H200 = {
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "multiProcessorCount": 132,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000,
    "l2CacheSize": 62914560,
    "deviceName": "NVIDIA H200",
    "deviceVer": 900,
    "driverVer": 13000,
    "totalGlobalMem": 143156 * 2**20,
    "cudaDeviceId": 0,
}

# Numbers of cudnn_graph.h: types of attributes, kinds of descriptors, notes of engines.
I64, FLOAT, DESCRIPTOR = 3, 4, 15
DEVICE_PROPERTIES, TENSOR, CONVOLUTION, GRAPH, HEURISTICS, CONFIG, ENGINE, PLAN = 38, 17, 1, 15, 4, 3, 2, 5
OPERATIONS = {"forward": (10, 700), "input": (12, 706), "weight": (11, 712)}
TENSOR_CORE, DOWN_CONVERT = 0, 1
ELEMENTS = {"f32": 0, "tf32": 0, "f16": 2, "bf16": 9}


HEURISTIC = """
int cublasLtMatmulAlgoGetHeuristic(void *a, void *b, void *c, void *d, void *e, void *f, void *g, int asked, char *found,
                                   int *count) {
  memset(found, 0, 96); /* one algorithm that needs no workspace */
  *count = 1;
  return 0;
}
"""
"""Of cuBLASLt: engines are offered only if it finds an algorithm."""


class Cudnn:
    """The library's backend interface."""

    def __init__(self, folder: Path) -> None:
        self.library = ctypes.CDLL(str(folder / "libcudnn.so.9"), mode=ctypes.RTLD_GLOBAL)
        self.made: list[ctypes.c_void_p] = []
        self.element = ELEMENTS["f32"]
        self.channels_last = False
        self.properties = self.make(DEVICE_PROPERTIES)
        text = json.dumps(H200).encode()
        self.call(
            "SetAttribute", self.properties, 2702, 24, ctypes.c_int64(len(text)), ctypes.create_string_buffer(text)
        )
        self.finish(self.properties)

    def call(self, name: str, *arguments: Any) -> None:
        if getattr(self.library, f"cudnnBackend{name}")(*arguments) != 0:
            buffer = ctypes.create_string_buffer(2048)
            self.library.cudnnGetLastErrorString(buffer, 2048)
            raise RuntimeError(f"cudnnBackend{name}{arguments[1:2]}: {buffer.value.decode()}")

    def make(self, kind: int) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self.call("CreateDescriptor", kind, ctypes.byref(found))
        self.made.append(found)
        return found

    def set(self, descriptor: ctypes.c_void_p, attribute: int, kind: int, values: Sequence[Any], element: Any) -> None:
        self.call(
            "SetAttribute", descriptor, attribute, kind, ctypes.c_int64(len(values)), (element * len(values))(*values)
        )

    def finish(self, descriptor: ctypes.c_void_p) -> None:
        self.call("Finalize", descriptor)

    def get(self, descriptor: ctypes.c_void_p, attribute: int, kind: int, most: int, values: Any) -> int:
        count = ctypes.c_int64()
        self.call("GetAttribute", descriptor, attribute, kind, ctypes.c_int64(most), ctypes.byref(count), values)
        return count.value

    def tensor(self, name: str, dims: Sequence[int]) -> ctypes.c_void_p:
        order = [0, *range(2, len(dims)), 1] if self.channels_last else [*range(len(dims))]
        strides, step = [1] * len(dims), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= dims[axis]
        made = self.make(TENSOR)
        self.set(made, 901, 1, [self.element], ctypes.c_int)
        for attribute, values in ((903, strides), (902, dims), (906, [ord(name)]), (900, [32])):
            self.set(made, attribute, I64, values, ctypes.c_int64)
        self.finish(made)
        return made

    def graph(self, direction: str, convolution: Convolution) -> ctypes.c_void_p:
        """The graph of the one operation."""
        x, out = convolution.x, convolution.out
        if convolution.transposed:
            x, out = out, x
            direction = {"forward": "input", "input": "forward", "weight": "weight"}[direction]
        how = self.make(CONVOLUTION)
        self.set(how, 100, 1, [0], ctypes.c_int)
        self.set(how, 101, 7, [1], ctypes.c_int)
        rank = len(convolution.pads)
        for attribute, values in (
            *((106, [rank]), (102, convolution.dilations), (103, convolution.strides)),
            *((105, convolution.pads), (104, convolution.pads)),
        ):
            self.set(how, attribute, I64, values, ctypes.c_int64)
        self.finish(how)
        kind, first = OPERATIONS[direction]
        operation = self.make(kind)
        tensors = [self.tensor("w", convolution.weight), self.tensor("x", x), self.tensor("y", out)]
        for attribute, descriptor in zip(range(first + 2, first + 6), (how, *tensors)):
            self.set(operation, attribute, DESCRIPTOR, [descriptor], ctypes.c_void_p)
        self.set(operation, first, FLOAT, [1.0], ctypes.c_float)
        self.set(operation, first + 1, FLOAT, [0.0], ctypes.c_float)
        self.finish(operation)
        made = self.make(GRAPH)
        self.set(made, 801, DESCRIPTOR, [operation], ctypes.c_void_p)
        self.finish(made)
        return made

    def configs(self, graph: ctypes.c_void_p, mode: int) -> Iterator[ctypes.c_void_p]:
        """What the heuristics offer, the best first."""
        heuristics = self.make(HEURISTICS)
        self.set(heuristics, 201, DESCRIPTOR, [graph], ctypes.c_void_p)
        self.set(heuristics, 200, 8, [mode], ctypes.c_int)
        self.set(heuristics, 204, DESCRIPTOR, [self.properties], ctypes.c_void_p)
        self.finish(heuristics)
        most = self.get(heuristics, 202, DESCRIPTOR, 0, None)
        found = (ctypes.c_void_p * most)(*[self.make(CONFIG).value for _ in range(most)])
        for index in range(self.get(heuristics, 202, DESCRIPTOR, most, found)):
            yield ctypes.c_void_p(found[index])

    def notes(self, config: ctypes.c_void_p) -> set[int]:
        """Of the config's engine: how it computes."""
        engine = (ctypes.c_void_p * 1)(self.make(ENGINE).value)
        self.get(config, 300, DESCRIPTOR, 1, engine)
        notes = (ctypes.c_int * 10)()
        count = self.get(ctypes.c_void_p(engine[0]), 1303, 11, 10, notes)
        return set(notes[:count])

    def tidy_up(self) -> None:
        """Plans hold kernels: without this, gigabytes."""
        for descriptor in reversed(self.made[1:]):
            self.library.cudnnBackendDestroyDescriptor(descriptor)
        del self.made[1:]

    def workspace(self, direction: str, convolution: Convolution, tensor_cores: bool, most: bool = False) -> int:
        """Bytes of the first plan that PyTorch would take, or the most of all: with `tensor_cores` also those on tensor cores."""
        found = self.plans(direction, convolution, tensor_cores)
        return max(found, default=0) if most else next(found, 0)

    def plans(self, direction: str, convolution: Convolution, tensor_cores: bool) -> Iterator[int]:
        """Bytes of the workspace of each plan, in PyTorch's order."""
        graph = self.graph(direction, convolution)
        refused = {DOWN_CONVERT} if tensor_cores else {DOWN_CONVERT, TENSOR_CORE}
        for mode in (0, 2):  # The heuristics' choice, then what always works.
            for config in self.configs(graph, mode):
                if self.notes(config) & refused:
                    continue
                plan = self.make(PLAN)
                self.set(plan, 401, DESCRIPTOR, [config], ctypes.c_void_p)
                self.set(plan, 407, DESCRIPTOR, [self.properties], ctypes.c_void_p)
                if self.library.cudnnBackendFinalize(plan) != 0:
                    continue
                nbytes = ctypes.c_int64()
                self.get(plan, 402, I64, 1, ctypes.byref(nbytes))
                yield nbytes.value


def load(folder: Path, scratch: Path) -> Cudnn:
    """cuDNN, with a cuBLASLt that does nothing."""
    names = set()
    for path in folder.glob("libcudnn*.so.9"):
        names |= set(re.findall(rb"cublasLt[A-Za-z0-9_]+", path.read_bytes()))
    versions = {b"cublasLtGetCudartVersion": 13000, b"cublasLtGetVersion": 130100}
    names = (names | set(versions)) - {b"cublasLtMatmulAlgoGetHeuristic"}
    lines = [f"unsigned long {name.decode()}() {{ return {versions.get(name, 0)}; }}" for name in sorted(names)]
    lines = ["#include <string.h>", *lines, HEURISTIC]
    source, library = scratch / "lt.c", scratch / "libcublasLt.so.13"
    source.write_text("\n".join(lines))
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", source, "-o", library], check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return Cudnn(folder)


@dataclass(frozen=True)
class _Shapes:
    """What `convolution_of` asks of a run."""

    graph: Any

    def shape(self, name: str) -> Any:
        return self.graph.shapes[name]


def convolutions(paths: Sequence[Path]) -> list[Convolution]:
    """Each convolution once, at batch 1."""
    found: dict[Convolution, None] = {}
    for path in paths:
        if path.suffix == ".json":
            for *lists, group, transposed in json.loads(path.read_text()):
                made = Convolution(*(tuple(each) for each in lists), group, transposed)
                if not made.depthwise:
                    found[made] = None
            continue
        graph = read_onnx(path, {"batch": 1})
        for node in graph.nodes:
            if node.op in ("Conv", "ConvTranspose"):
                made = convolution_of(_Shapes(graph), node)
                if not made.depthwise:
                    found[made] = None
    return [*dict.fromkeys((*found, *unet()))]


def unet(channels: int = 64, size: int = 256) -> Iterator[Convolution]:
    """Three levels down and up, two convolutions on each."""
    widths = [channels * 2**level for level in range(4)]
    for level, width in enumerate(widths):
        side = size >> level
        sources = [3 if level == 0 else widths[level - 1], width]
        for source in sources + ([2 * width] if level < 3 else []):
            yield Convolution(
                (1, source, side, side), (width, source, 3, 3), (1, width, side, side), (1, 1), (1, 1), (1, 1), 1, False
            )
        if level:
            out = (1, widths[level - 1], 2 * side, 2 * side)
            yield Convolution((1, width, side, side), (width, out[1], 2, 2), out, (0, 0), (2, 2), (1, 1), 1, True)
    yield Convolution(
        (1, channels, size, size), (10, channels, 1, 1), (1, 10, size, size), (0, 0), (1, 1), (1, 1), 1, False
    )


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cudnn", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--only", choices=list(ELEMENTS))
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--most", action="store_true")
    options = parser.parse_args()
    ending = "_channels_last" if options.channels_last else "_most" if options.most else ""
    found = convolutions(options.models)
    with tempfile.TemporaryDirectory() as scratch:
        cudnn = load(options.cudnn, Path(scratch))
        for kind in ELEMENTS:
            if options.only not in (None, kind):
                continue
            cudnn.element, cudnn.channels_last = ELEMENTS[kind], options.channels_last
            rows = []
            for at, each in enumerate(found):
                if at % 100 == 0:
                    print(f"{kind}: {at} of {len(found)}", flush=True)
                sized = [replace(each, x=(batch, *each.x[1:]), out=(batch, *each.out[1:])) for batch in BATCHES]
                bytes_of = [
                    [cudnn.workspace(direction, one, kind != "f32", options.most) for direction in OPERATIONS]
                    for one in sized
                ]
                numbers = [str(number) for row in bytes_of for number in row]
                rows.append(f"{key_of(each.shape)} {','.join(numbers)}")
                cudnn.tidy_up()
            text = "\n".join([",".join(map(str, BATCHES)), *rows, ""])
            name = f"cudnn_9_19_sm90_{kind}{ending}.txt.gz"
            (DATA / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            print(f"{name}: {len(rows)} convolutions")


if __name__ == "__main__":
    main()

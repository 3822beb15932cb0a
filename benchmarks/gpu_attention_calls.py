# SPDX-License-Identifier: Apache-2.0
"""memc's launches of attention in training, compiled with their kernels and called without TVM, on tensors of PyTorch."""

from __future__ import annotations

import ctypes
import math
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

TYPES = {"f32": "F32", "tf32": "Tf32", "f16": "F16", "bf16": "Bf16"}
WIDTHS = (64, 96, 128, 256)
TORCH = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
ELEMENTS = {"f32": 0, "tf32": 0, "f16": 1, "bf16": 2}

Strides = ctypes.c_int64 * 3


class Shape(ctypes.Structure):
    """`TrainingShape` of cpp/cuda/cuda_attention_training.h."""

    _fields_ = [
        ("type", ctypes.c_int64),
        ("tf32", ctypes.c_bool),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int64) for name in ("diagonal", "outer", "inner", "outer_share", "inner_share")),
        *((name, ctypes.c_int64) for name in ("queries", "keys", "depth", "width")),
        *((name, Strides) for name in ("q", "k", "v", "mask", "result", "rows")),
        ("mask_column", ctypes.c_int64),
        ("masked", ctypes.c_int),
    ]


class Data(ctypes.Structure):
    """`TrainingData` there."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("q", "k", "v", "mask", "g", "share", "result", "log_sum", "of_q", "of_k", "of_v")
    ]


@dataclass(frozen=True)
class Case:
    """Attention of heads [batch, heads], of which k has `heads_of_k`; with the heads before or behind the positions."""

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    width: int = 0
    heads_of_k: int = 0
    diagonal: int | None = None
    mask: str | None = None
    """bool or added; None for none."""
    behind: bool = False
    seed: int = field(default=1, repr=False)

    @property
    def columns(self) -> int:
        return self.width or self.depth

    @property
    def keyed(self) -> int:
        return self.heads_of_k or self.heads

    def tensor(self, heads: int, positions: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Numbers of a normal distribution, [batch, heads, positions, columns] of strides as they are in memory."""
        shape = (self.batch, positions, heads, columns) if self.behind else (self.batch, heads, positions, columns)
        found = torch.randn(shape, device="cuda").to(dtype)
        return found.transpose(1, 2) if self.behind else found

    def operands(self, kind: str) -> list[torch.Tensor]:
        torch.manual_seed(self.seed)
        dtype = TORCH[kind]
        q = self.tensor(self.heads, self.queries, self.depth, dtype)
        k = self.tensor(self.keyed, self.keys, self.depth, dtype)
        v = self.tensor(self.keyed, self.keys, self.columns, dtype)
        return [q, k, v, self.tensor(self.heads, self.queries, self.columns, dtype)]

    def masks(self, kind: str) -> torch.Tensor | None:
        if self.mask is None:
            return None
        if self.mask == "added":
            return torch.randn((self.batch, 1, self.queries, self.keys), device="cuda").to(TORCH[kind])
        seen = torch.rand((self.batch, 1, 1, self.keys), device="cuda") < 0.7
        seen[..., 0] = True
        return seen


class Library:
    """memc's launches, compiled with the kernels of some types and widths."""

    def __init__(self, root: Path, kernels: list[tuple[str, int]], masked: bool = False) -> None:
        folder = Path(tempfile.mkdtemp())
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
        common = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}"]
        own = root / "runtime/codegen/cuda_kernels"
        started, images = [], []
        for kind, width in kernels:
            source = folder / f"{kind}_{width}.cu"
            made = f"ATTENTION_TRAINING({TYPES[kind]}, {kind}, {width})\n"
            if masked:
                made += f"ATTENTION_TRAINING(Masked<{TYPES[kind]}>, masked_{kind}, {width})\n"
            source.write_text(f'#include "attention_training.cuh"\n{made}')
            images.append(source.with_suffix(".cubin"))
            command = [*common, "-cubin", f"-I{own}", str(source), "-o", str(images[-1])]
            started.append(subprocess.Popen(command))
        parts = ("attention_training", "launch", "context", "handles", "api")
        sources = [str(root / f"cpp/cuda/cuda_{part}.cc") for part in parts]
        calls = [str(Path(__file__).with_name("gpu_attention.cu")), *sources, "-o", str(folder / "calls.so"), "-ldl"]
        subprocess.run([*common, "-shared", "-Xcompiler", "-fPIC", f"-I{root / 'cpp'}", *calls], check=True)
        if any(process.wait() != 0 for process in started):
            raise SystemExit("the kernels do not compile")
        torch.zeros(1, device="cuda")
        self.calls = ctypes.CDLL(str(folder / "calls.so"))
        for name in ("AddCubin", "Forward", "Backward"):
            getattr(self.calls, name).restype = ctypes.c_char_p
        for path in images:
            image = path.read_bytes()
            self.checked(self.calls.AddCubin(image, ctypes.c_size_t(len(image))))

    def checked(self, error: bytes | None) -> None:
        if error is not None:
            raise RuntimeError(error.decode())

    def call(self, case: Case, kind: str, operands: list[torch.Tensor], mask: torch.Tensor | None) -> Call:
        return Call(self, case, kind, operands, mask)


def strides(t: torch.Tensor) -> Any:
    return Strides(t.stride(0), t.stride(1), t.stride(2))


class Call:
    """One attention and its gradients, with room for what they give."""

    def __init__(
        self, library: Library, case: Case, kind: str, operands: list[torch.Tensor], mask: torch.Tensor | None
    ) -> None:
        q, k, v, g = operands
        self.library, self.kept = library, [*operands, mask]
        self.result, self.of_q, self.of_k, self.of_v = (torch.full_like(x, math.nan) for x in (g, q, k, v))
        rows = (case.batch, case.queries, case.heads) if case.behind else (case.batch, case.heads, case.queries)
        self.log_sum, self.share = (torch.full(rows, math.nan, device="cuda") for _ in range(2))
        of_rows = self.log_sum.transpose(1, 2) if case.behind else self.log_sum
        self.rows = of_rows
        s = self.shape = Shape(ELEMENTS[kind], kind == "tf32", case.depth**-0.5)
        s.diagonal = case.keys if case.diagonal is None else case.diagonal
        s.outer, s.inner, s.outer_share, s.inner_share = case.batch, case.heads, 1, case.heads // case.keyed
        s.queries, s.keys, s.depth, s.width = case.queries, case.keys, case.depth, case.columns
        s.q, s.k, s.v, s.result, s.rows = (strides(x) for x in (q, k, v, g, of_rows))
        if mask is not None:
            steps = [0 if n == 1 else step for n, step in zip(mask.shape, mask.stride())]
            s.mask, s.mask_column = Strides(*steps[:3]), steps[3]
            s.masked = 1 if mask.dtype is torch.bool else 2
        tensors = (q, k, v, mask, g, self.share, self.result, self.log_sum, self.of_q, self.of_k, self.of_v)
        self.data = Data(*(None if x is None else x.data_ptr() for x in tensors))

    def forward(self) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        calls = self.library.calls
        self.library.checked(calls.Forward(ctypes.byref(self.shape), ctypes.byref(self.data), stream))

    def backward(self) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        result = ctypes.c_void_p(self.result.data_ptr())
        found = self.library.calls.Backward(ctypes.byref(self.shape), ctypes.byref(self.data), result, stream)
        self.library.checked(found)

    def step(self) -> None:
        self.forward()
        self.backward()

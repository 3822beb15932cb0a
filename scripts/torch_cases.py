# SPDX-License-Identifier: Apache-2.0
"""Write the programs that tests of PyTorch's importer read: scripts/torch_cases.py DIR, where PyTorch is installed.

One `.pt2` file for each family of overloads. Each calls overloads one by one on small tensors; inputs and PyTorch's results lie in the
same file, under `extra/`.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_case_inputs import Case, f
from torch_cases_arithmetic import activation, comparison, convolution, elementwise, matmul, normalization, pooling
from torch_cases_backward import backward
from torch_cases_forms import forms, pairs, rearranged
from torch_cases_positions import attention, encoder_layer, indexing, loss, margin_loss, resize, sorting, vision
from torch_cases_shapes import creation, layout, reduction, views


class InPlace(torch.nn.Module):
    """Writes to tensors, views of them, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(2, 3))
        self.linear = torch.nn.Linear(3, 4)
        self.tied = torch.nn.Linear(3, 4, bias=False)
        self.tied.weight = self.linear.weight

    def forward(self, x: torch.Tensor, row: torch.Tensor) -> dict[str, torch.Tensor]:
        self.count[1:3].add_(2).mul_(3)
        self.cache.select(0, 1).copy_(row)
        y = x.clone()
        y[:, 1:] = 5
        y[0] += row
        turned = y.transpose(0, 1)
        turned[0].neg_()
        seen = y.view(-1)[::2]
        y.reshape(6).index_fill_(0, torch.tensor([1]), 9.0)
        z = torch.nn.functional.relu_(self.linear(x))
        with torch.no_grad():
            total = z.sum()
        return {
            "y": y,
            "turned": turned,
            "seen": seen,
            "z": z + self.tied(row),
            "total": total + self.count.sum(),
            "cache": self.cache * 2,
        }


FAMILIES: tuple[Callable[[], list[Case]], ...] = (
    elementwise,
    comparison,
    activation,
    matmul,
    convolution,
    pooling,
    normalization,
    reduction,
    views,
    layout,
    creation,
    indexing,
    sorting,
    attention,
    encoder_layer,
    loss,
    margin_loss,
    resize,
    vision,
    pairs,
    rearranged,
    forms,
    backward,
)


class Calls(torch.nn.Module):
    """All cases of a family, one after another."""

    def __init__(self, cases: list[Case]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        left, found = list(inputs), []
        for call, given in self.cases:
            result = call(*left[: len(given)])
            del left[: len(given)]
            found += (
                [result] if isinstance(result, torch.Tensor) else [r for r in result if isinstance(r, torch.Tensor)]
            )
        return [each.clone() for each in found]


def write(path: Path, net: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shapes: Any = None) -> None:
    """Export a module, run it, and put program, inputs and results into one file, packed."""
    buffer = io.BytesIO()
    with torch.no_grad():
        torch.export.save(torch.export.export(net.eval(), inputs, dynamic_shapes=shapes, strict=False), buffer)
        results = net(*inputs)
    named = (
        results
        if isinstance(results, dict)
        else dict(enumerate(results if isinstance(results, (list, tuple)) else [results]))
    )
    extra = {f"in{n}": x.numpy() for n, x in enumerate(inputs)} | {
        f"out{n}": x.numpy() for n, x in enumerate(named.values())
    }
    data = io.BytesIO()
    np.savez(data, **extra)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if "sample_inputs" not in name:
                target.writestr(zipfile.ZipInfo(name), source.read(name), zipfile.ZIP_DEFLATED)
        target.writestr(zipfile.ZipInfo(f"{path.stem}/extra/data.npz"), data.getvalue(), zipfile.ZIP_DEFLATED)


class Sizes(torch.nn.Module):
    """Computes with sizes that vary."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, width = x.shape
        return (x.reshape(n * 2, width // 2).sum(1) / n, x[1:] + torch.arange(width), torch.cat([x, y]).mean(0))


def main() -> None:
    """Write every file."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    chosen = sys.argv[2:]
    for family in FAMILIES:
        if chosen and family.__name__ not in chosen:
            continue
        torch.manual_seed(0)
        cases = family()
        write(folder / f"{family.__name__}.pt2", Calls(cases), tuple(x for _, given in cases for x in given))
        print(family.__name__, len(cases), flush=True)
    torch.manual_seed(0)
    write(folder / "in_place.pt2", InPlace(), (f(2, 3), f(3)))
    n = torch.export.Dim("n", min=4, max=64)
    write(folder / "sizes.pt2", Sizes(), (f(5, 6), f(6, 6)), ({0: n}, {0: n + 1}))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The networks of measured PyTorch jobs that no package has. Needs torch alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def double(inner: int, outer: int) -> nn.Module:
    """Two convolutions with batch normalization and ReLU."""
    parts: list[nn.Module] = []
    for channels in (inner, outer):
        parts += [nn.Conv2d(channels, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(True)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Levels of two convolutions each, down and up, of so many channels from the top on."""

    def __init__(self, widths: Sequence[int] = (64, 128, 256, 512), results: int = 10) -> None:
        super().__init__()
        *levels, lowest = widths
        upwards = list(zip(widths[1:], levels))[::-1]
        self.down = nn.ModuleList(double(inner, outer) for inner, outer in zip((3, *levels), levels))
        self.bottom = double(levels[-1], lowest)
        self.up = nn.ModuleList(nn.ConvTranspose2d(lower, width, 2, 2) for lower, width in upwards)
        self.end = nn.ModuleList(double(2 * width, width) for _, width in upwards)
        self.out = nn.Conv2d(widths[0], results, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, end in zip(self.up, self.end):
            x = end(torch.cat([up(x), kept.pop()], 1))
        return self.out(x)


class Recurrent(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10000, 512)
        self.recurrent = nn.LSTM(512, 1024, 2, batch_first=True)
        self.out = nn.Linear(1024, 10000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.recurrent(self.embedding(x))[0])

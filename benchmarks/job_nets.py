# SPDX-License-Identifier: Apache-2.0
"""The networks of measured PyTorch jobs that no package has. Needs torch alone."""

from __future__ import annotations

import torch
from torch import nn


def double(inner: int, outer: int) -> nn.Module:
    """Two convolutions with batch normalization and ReLU."""
    parts: list[nn.Module] = []
    for channels in (inner, outer):
        parts += [nn.Conv2d(channels, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(True)]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Three levels down and up, from `c` channels on."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        self.down = nn.ModuleList([double(3, c), double(c, 2 * c), double(2 * c, 4 * c)])
        self.bottom = double(4 * c, 8 * c)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n * c, n * c, 2, 2) for n in (4, 2, 1))
        self.end = nn.ModuleList([double(8 * c, 4 * c), double(4 * c, 2 * c), double(2 * c, c)])
        self.out = nn.Conv2d(c, 10, 1)

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

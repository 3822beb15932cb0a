# SPDX-License-Identifier: Apache-2.0
"""The PyTorch modules that the models of training/ and inference/ were exported from, for comparisons of speed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class UNet(nn.Module):
    """Four levels of two convolutions each, down and up, and the mean of each of 4 result channels."""

    def __init__(self) -> None:
        super().__init__()
        widths = [32, 64, 128, 256, 512]
        self.down = nn.ModuleList(double(3 if n == 0 else widths[n - 1], widths[n]) for n in range(4))
        self.bottom = double(widths[3], widths[4])
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[n + 1], widths[n], 2, 2) for n in (3, 2, 1, 0))
        self.join = nn.ModuleList(double(2 * widths[n], widths[n]) for n in (3, 2, 1, 0))
        self.out = nn.Conv2d(widths[0], 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.out(x).mean((2, 3))


def double(inner: int, outer: int) -> nn.Module:
    parts: list[nn.Module] = []
    for channels in (inner, outer):
        parts += [nn.Conv2d(channels, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(True)]
    return nn.Sequential(*parts)


class Recurrent(nn.Module):
    """Two layers of LSTM; the last state decides."""

    def __init__(self) -> None:
        super().__init__()
        self.r = nn.LSTM(1024, 1024, 2, batch_first=True)
        self.o = nn.Linear(1024, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(self.r(x)[0][:, -1])


class Bert(nn.Module):
    """BERT base with a classifier of 1,000."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        self.m = BertForSequenceClassification(BertConfig(num_labels=1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.m(x).logits


def build(stem: str) -> nn.Module:
    """The module of a model by the last part of its name, without dropout. Raises ValueError for one that has none here."""
    own: dict[str, Any] = {"unet": UNet, "lstm": Recurrent, "bert_base": Bert}
    if stem in own:
        module = own[stem]()
    else:
        import torchvision

        if not hasattr(torchvision.models, stem):
            raise ValueError(f"no PyTorch module for {stem}")
        extra = {"aux_logits": False, "init_weights": True} if stem in ("googlenet", "inception_v3") else {}
        module = getattr(torchvision.models, stem)(**extra)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module

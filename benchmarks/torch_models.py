# SPDX-License-Identifier: Apache-2.0
"""The PyTorch modules that the models of training/ and inference/ were exported from, for comparisons of speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import conv_nets
import job_nets
import torch
from torch import nn


class UNet(job_nets.UNet):
    """Four levels, and the mean of each of 4 result channels."""

    def __init__(self) -> None:
        super().__init__((32, 64, 128, 256, 512), 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).mean((2, 3))


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


class Written(nn.Module):
    """A network of `conv_nets.py` over planes: its layers in order, each with the numbers of the tensors that it reads."""

    rank = 2

    def __init__(self, stem: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.reads: list[tuple[int, ...]] = []
        self.result = conv_nets.NETWORKS[stem](self, 0)

    def _put(self, layer: nn.Module, *reads: int) -> int:
        self.layers.append(layer)
        self.reads.append(reads)
        return len(self.reads)

    def conv(self, x: int, inner: int, outer: int, kernel: Any, stride: Any, pad: Any, group: int, relu: bool) -> int:
        parts = [nn.Conv2d(inner, outer, kernel, stride, pad, groups=group, bias=False), nn.BatchNorm2d(outer)]
        return self._put(nn.Sequential(*parts, *([nn.ReLU(True)] if relu else [])), x)

    def add_relu(self, a: int, b: int, relu: bool) -> int:
        return self._put(Sum(relu), a, b)

    def max_pool(self, x: int) -> int:
        return self._put(nn.MaxPool2d(3, 2), x)

    def mean_pool(self, x: int) -> int:
        return self._put(nn.AvgPool2d(3, 1, 1, count_include_pad=False), x)

    def concat(self, parts: Sequence[int]) -> int:
        return self._put(Joined(), *parts)

    def classify(self, x: int, inner: int, classes: int) -> int:
        return self._put(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes)), x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [x]
        for layer, reads in zip(self.layers, self.reads):
            made.append(layer(*[made[n] for n in reads]))
        return made[self.result]


class Sum(nn.Module):
    def __init__(self, relu: bool) -> None:
        super().__init__()
        self.relu = relu

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a + b) if self.relu else a + b


class Joined(nn.Module):
    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.cat(parts, 1)


def build(stem: str) -> nn.Module:
    """The module of a model by the last part of its name, without dropout. Raises ValueError for one that has none here."""
    own: dict[str, Any] = {"unet": UNet, "lstm": Recurrent, "bert_base": Bert}
    if stem in own:
        module = own[stem]()
    elif stem == "inception_v4":
        module = Written(stem)
    else:
        import torchvision

        if stem == "r3d_18":
            return torchvision.models.video.r3d_18()
        if not hasattr(torchvision.models, stem):
            raise ValueError(f"no PyTorch module for {stem}")
        extra = {"aux_logits": False, "init_weights": True} if stem in ("googlenet", "inception_v3") else {}
        module = getattr(torchvision.models, stem)(**extra)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return module

# SPDX-License-Identifier: Apache-2.0
"""Write the convolutions of torchvision's classifiers, which `scripts/cudnn_workspaces.py` makes tables of, as JSON.

    python scripts/torchvision_convolutions.py FILE.json

Needs torch and torchvision, no GPU and no weights: models run on the meta device, on images of 224 pixels (299 for Inception v3).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn

KINDS = (nn.Conv2d, nn.ConvTranspose2d)
INITIALIZERS = ("kaiming_normal_", "kaiming_uniform_", "normal_", "uniform_", "xavier_uniform_", "trunc_normal_")
"""Of torch.nn.init, which take most of the time otherwise."""
SIZES = {"inception_v3": 299}


def convolutions(name: str) -> list[list[Any]]:
    """Dims of x, weight and result, paddings, strides, dilations, groups, and whether it is transposed; of one model."""
    found: list[list[Any]] = []

    def note(module: nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        assert isinstance(module, KINDS) and not isinstance(module.padding, str)
        shapes = [list(given[0].shape), list(module.weight.shape), list(out.shape)]
        how = [list(each) for each in (module.padding, module.stride, module.dilation)]
        found.append([*shapes, *how, module.groups, isinstance(module, nn.ConvTranspose2d)])

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **options).to("meta")
    with torch.device("meta"), torch.no_grad():
        for module in model.modules():
            if isinstance(module, KINDS):
                module.register_forward_hook(note)
        model.train()
        size = SIZES.get(name, 224)
        model(torch.empty(2, 3, size, size))  # Normalization in training needs two.
    for each in found:
        each[0][0] = each[2][0] = 1
    return found


def main() -> None:
    """Write them all, each once."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    for initializer in INITIALIZERS:
        setattr(nn.init, initializer, lambda tensor, *_, **__: tensor)
    names = torchvision.models.list_models(module=torchvision.models)
    every = {json.dumps(each): each for name in names for each in convolutions(name)}
    options.file.write_text(json.dumps(list(every.values())))
    print(f"{len(names)} models, {len(every)} convolutions")


if __name__ == "__main__":
    main()

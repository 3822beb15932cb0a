# SPDX-License-Identifier: Apache-2.0
"""Training steps of the models of `training/`: the forward pass of each with cross entropy, its gradients, and SGD.

So training is measured and planned on one set of graphs: that of the PyTorch baseline, which takes a plain SGD step.
"""

from __future__ import annotations

from pathlib import Path

import models

import memc
from memc.compile_options import Options
from memc.driver import load_module
from memc.ir.module import Module

SGD = memc.BuildGradient(loss="softmax-cross-entropy", optimizer="sgd")

NAMES = sorted(model.name.split("/")[1] for model in models.MODELS if model.family == "training")
"""What `training_module` takes."""


def training_module(name: str, batch: int, folder: Path, cache: Path, train: memc.BuildGradient | None = SGD) -> Module:
    """The training step of model `name` at a batch size, before any pass that plans; without `train`, the forward pass
    as training imports it (batch norm and dropout kept).

    `folder` holds training/*.onnx; seeded weights are written below `cache` once and mapped, not read.
    """
    (model,) = (m for m in models.MODELS if m.name == f"training/{name}")
    options = Options(input_shapes=model.shapes(batch), train=train or SGD)
    module = load_module(model.path(folder, cache), options)
    if train is not None:
        train.apply(module)
    return module

# SPDX-License-Identifier: Apache-2.0
"""ONNX models of the jobs in `data/pytorch_h200_jobs.json`, in training mode and without their weights' data.

    python benchmarks/estimate_exports.py FOLDER [MODEL ...] [--dynamo]

MODEL is one of the jobs', or any other classifier of torchvision's.

Needs torch, torchvision and transformers, no GPU and no downloads: the weights are not initialized. The exporter is the one that
traces, which names modules and keeps the batch open as `batch`; with --dynamo the newer one, as it is by default.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import onnx
import torch
import torchvision
import transformers
from job_nets import Recurrent, UNet
from torch import nn

INITIALIZERS = ("kaiming_normal_", "kaiming_uniform_", "normal_", "uniform_", "xavier_uniform_", "trunc_normal_")
"""Of torch.nn.init, which take most of the time otherwise."""
NEWER_ALONE = {"googlenet"}
"""Models that the older exporter refuses."""
MOST_STORED = 64
"""Elements of a tensor whose data is kept: numbers that shapes depend on."""


class Transformer(nn.Module):
    """A model of transformers: its logits, and keys and values where it caches them."""

    def __init__(self, m: nn.Module) -> None:
        super().__init__()
        self.m = m

    def forward(self, x: torch.Tensor) -> Any:
        found = self.m(input_ids=x)
        cache = getattr(found, "past_key_values", None)
        if cache is None:
            return found.logits
        return (found.logits, *(part for layer in cache.layers for part in (layer.keys, layer.values)))


class Outputs(nn.Module):
    """A model whose outputs have names, as a tuple."""

    def __init__(self, m: nn.Module) -> None:
        super().__init__()
        self.m = m

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.m(x))


def _images(size: int = 224) -> torch.Tensor:
    return torch.zeros(2, 3, size, size)


def _tokens(length: int) -> torch.Tensor:
    return torch.ones(2, length, dtype=torch.int64)


def _bert() -> nn.Module:
    return Transformer(transformers.BertForSequenceClassification(transformers.BertConfig()))


def _llama() -> nn.Module:
    sizes = {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=12, num_attention_heads=12)
    return Transformer(transformers.LlamaForCausalLM(config))


def _vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision.models, name)(weights=None, **options)


PLAIN = (
    *(
        "resnet18",
        "resnet50",
        "resnet152",
        "vgg16",
        "mobilenet_v2",
        "densenet121",
        "efficientnet_b0",
        "alexnet",
        "vit_b_16",
    ),
    *("shufflenet_v2_x1_0", "resnext50_32x4d", "vgg19_bn"),
)
MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    **{name: (_vision(name), _images()) for name in PLAIN},
    "inception_v3": (lambda: Outputs(_vision("inception_v3", init_weights=False)()), _images(299)),
    "googlenet": (lambda: Outputs(_vision("googlenet", init_weights=False)()), _images()),
    "unet": (UNet, _images(256)),
    "lstm": (Recurrent, _tokens(64)),
    "bert_base": (_bert, _tokens(128)),
    "bert_base_512": (_bert, _tokens(512)),
    "gpt2": (lambda: Transformer(transformers.GPT2LMHeadModel(transformers.GPT2Config())), _tokens(512)),
    "llama_160m": (_llama, _tokens(1024)),
}


def without_weights(path: Path) -> None:
    """Drop the data of all tensors but numbers."""
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        if prod(tensor.dims) > MOST_STORED:
            for field in ("raw_data", "float_data", "int64_data", "external_data"):
                tensor.ClearField(field)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="absent.weights")
    onnx.save(model, str(path))
    Path(f"{path}.data").unlink(missing_ok=True)


def main() -> None:
    """Write the models."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--dynamo", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in INITIALIZERS:
        setattr(nn.init, name, lambda tensor, *_, **__: tensor)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.models or MODELS:
        make, x = MODELS.get(name) or (_vision(name), _images())
        model, path = make().train(), options.folder / f"{name}.onnx"
        if options.dynamo or name in NEWER_ALONE:
            shapes = ({0: torch.export.Dim("batch", min=2, max=4096)},)
            torch.onnx.export(model, (x,), str(path), dynamo=True, dynamic_shapes=shapes, input_names=["input"])
        else:
            training = torch.onnx.TrainingMode.TRAINING
            axes = {"input": {0: "batch"}, "logits": {0: "batch"}}
            names = {"input_names": ["input"], "output_names": ["logits"], "dynamic_axes": axes}
            torch.onnx.export(
                model,
                (x,),
                str(path),
                dynamo=False,
                training=training,
                do_constant_folding=False,
                opset_version=17,
                **names,
            )
        without_weights(path)
        print(path, flush=True)


if __name__ == "__main__":
    main()

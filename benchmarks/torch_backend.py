# SPDX-License-Identifier: Apache-2.0
"""Training steps of models through `torch.compile(backend="memc")` beside eager: losses and gradients, on the CPU.

    python benchmarks/torch_backend.py
    python benchmarks/torch_backend.py resnet18 gpt2

Each model takes a step in f64 and, with `--f32`, in f32, without dropout, from the same weights. In f64 memc and eager agree to rounding, so that a wrong
gradient shows; in f32 both are held against eager in f64, because rounding turns kinks (ReLU, maximum) either way. Prints a table of Markdown.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import memc.torch

IMAGES = (
    "squeezenet1_1",
    "resnet18",
    "mobilenet_v2",
    "mnasnet0_5",
    "shufflenet_v2_x0_5",
    "vit_b_16",
    "efficientnet_b0",
    "regnet_x_400mf",
)
TEXTS = ("gpt2", "bert", "llama")
TOKENS = 64
"""The vocabulary of language models."""

Job = tuple[nn.Module, torch.Tensor, Callable[[Any], torch.Tensor]]


def job(name: str) -> Job:
    """A model, its input and the loss of what it returns."""
    torch.manual_seed(0)
    if name in TEXTS:
        words = torch.randint(0, TOKENS, (2, 16))
        return _text(name), words, lambda y: nn.functional.cross_entropy(y.logits.flatten(0, 1), words.flatten())
    import torchvision

    net = getattr(torchvision.models, name)(num_classes=10)
    for module in net.modules():
        if type(module).__name__ in ("Dropout", "StochasticDepth"):
            module.p = 0.0
    x = torch.randn(1, 3, 224, 224) if name.startswith("vit") else torch.randn(2, 3, 64, 64)
    return net, x, lambda y: nn.functional.cross_entropy(y, torch.arange(len(x)))


def _text(name: str) -> nn.Module:
    import transformers as hf

    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "vocab_size": TOKENS}
    if name == "gpt2":
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        return hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=TOKENS, **ends, **none))
    if name == "bert":
        drops = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return hf.BertForMaskedLM(hf.BertConfig(num_attention_heads=2, **sizes, **drops))
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return hf.LlamaForCausalLM(hf.LlamaConfig(use_cache=False, **sizes, **heads))


def step(call: Callable[..., Any], net: nn.Module, x: torch.Tensor, loss: Callable[[Any], torch.Tensor]) -> Any:
    """The loss, and the gradients of the parameters."""
    for p in net.parameters():
        p.grad = None
    value = loss(call(x))
    value.backward()
    return value.detach().double(), [p.grad.double() for p in net.parameters() if p.grad is not None]


def apart(found: Any, wanted: Any) -> tuple[float, float]:
    """The losses' distance, and the largest of a gradient relative to the largest gradient's size."""
    size = max(float(g.norm()) for g in wanted[1])
    assert len(found[1]) == len(wanted[1])
    return abs(float(found[0] - wanted[0])), max(float((a - b).norm()) for a, b in zip(found[1], wanted[1])) / size


def row(name: str, single: bool) -> str:
    """A model's line."""
    net, x, loss = job(name)
    wide = copy.deepcopy(net).double()
    given = x.double() if x.is_floating_point() else x
    wanted = step(wide, wide, given, loss)
    texts = []
    for module, held in ((wide, given), *([(net, x)] if single else [])):
        eager = step(module, module, held, loss)
        begin = time.perf_counter()
        torch._dynamo.reset()
        found = step(torch.compile(module, backend=memc.torch.backend), module, held, loss)
        texts += [f"{value:.1e}" for value in apart(found, wanted)]
        texts += [f"{apart(eager, wanted)[1]:.1e}"] if module is net else []
        texts.append(f"{time.perf_counter() - begin:.0f}")
    return f"| {name} | {' | '.join(texts)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*TEXTS, *IMAGES])
    parser.add_argument("--f32", action="store_true", help="in f32 too")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    single = " loss apart, f32 | gradients apart, f32 | eager's, f32 | s, f32 |" if args.f32 else ""
    print(f"| model | loss apart, f64 | gradients apart, f64 | s |{single}")
    print("| --- | --: | --: | --: |" + (" --: | --: | --: | --: |" if args.f32 else ""))
    for name in args.models:
        print(row(name, args.f32), flush=True)


if __name__ == "__main__":
    main()

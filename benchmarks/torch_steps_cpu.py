# SPDX-License-Identifier: Apache-2.0
"""Training steps by `memc.torch.compile_step` on the CPU beside eager PyTorch: losses, weights, planned memory, and the time to the
first step. A stage of torch_steps.py.

Each model is trained for five steps by memc, by eager PyTorch in f32 and in f64, from the same weights on the same batches. Rounding
grows from step to step in networks of many batch normalizations; f64 tells by how much: f32 of PyTorch is as far off there. The first
step's update is compared by itself, before that.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch_census import GROUPED, HEADS, TEXT

STEPS = 5
LIMIT = 1e-5
"""By how much losses may differ."""

VISION = {
    **{"resnet18": 64, "resnet50": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "squeezenet1_1": 64},
    **{"shufflenet_v2_x0_5": 64, "regnet_y_400mf": 64, "efficientnet_b0": 64, "convnext_tiny": 64, "swin_t": 64},
}
"""Models of torchvision and their images' sides."""

LANGUAGE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "BertConfig", TEXT),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", TEXT),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**TEXT, "embedding_size": 64}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 128},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", HEADS),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", HEADS),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**GROUPED, "pad_token_id": 0}),
}
"""Models of transformers with few and narrow layers: their class, that of their configuration, and its options."""

Batch = tuple[Any, ...] | dict[str, Any]


def names() -> list[str]:
    """All models, by package."""
    return [*(f"torchvision/{name}" for name in VISION), *(f"transformers/{name}" for name in LANGUAGE)]


def of_torchvision(name: str) -> tuple[Any, Callable[[int], Batch]]:
    """A network, and its batches by number."""
    import torch
    import torchvision

    net = getattr(torchvision.models, name)(weights=None, num_classes=10)

    def draw(number: int) -> Batch:
        torch.manual_seed(number)
        return torch.randn(4, 3, VISION[name], VISION[name]), torch.randint(0, 10, (4,))

    return net, draw


def of_transformers(name: str) -> tuple[Any, Callable[[int], Batch]]:
    """A language model that returns its loss, and its batches by number: a quarter of the labels do not count."""
    import torch
    import transformers

    model, config, options = LANGUAGE[name]
    chosen = getattr(transformers, config)(**options)
    chosen.use_cache, chosen._attn_implementation = False, "sdpa"
    net = getattr(transformers, model)(chosen)

    def draw(number: int) -> Batch:
        torch.manual_seed(number)
        ids = torch.randint(1, options["vocab_size"], (2, 64))
        return {"input_ids": ids, "labels": torch.where(torch.rand(2, 64) < 0.25, -100, ids)}

    return net, draw


def built(name: str) -> tuple[Any, Callable[[int], Batch]]:
    """A model in training mode whose steps are not random, and its batches."""
    import torch

    torch.manual_seed(0)
    package, _, model = name.partition("/")
    net, draw = (of_torchvision if package == "torchvision" else of_transformers)(model)
    for module in net.modules():
        for rate in ("p", "dropout", "dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.0)
    return net.train(), draw


def optimizer_of(net: Any, name: str) -> Any:
    """SGD with momentum for networks with batch normalizations, AdamW for language models. Adam's steps are of the learning rate also
    where a gradient is rounding alone, unless eps is larger than that."""
    import torch

    if name.startswith("torchvision"):
        return torch.optim.SGD(net.parameters(), 1e-5, momentum=0.9, weight_decay=1e-4)
    return torch.optim.AdamW(net.parameters(), 1e-3, eps=1e-4, weight_decay=0.01)


def eager(net: Any, name: str, batches: Iterable[Batch]) -> list[float]:
    """Losses of PyTorch's steps, in the element type of the module."""
    import torch

    optimizer, losses = optimizer_of(net, name), []
    to = next(net.parameters()).dtype
    for batch in batches:
        optimizer.zero_grad()
        if isinstance(batch, dict):
            loss = net(**batch).loss
        else:
            loss = torch.nn.functional.cross_entropy(net(batch[0].to(to)), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def furthest(one: Any, other: Any) -> float:
    """The largest difference between parameters or buffers of two modules."""
    pairs = zip(one.state_dict().values(), other.state_dict().values())
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())


def off(moved: Any, exact: Any, start: Any) -> float:
    """How far the update of parameters is from the exact one, over its norm."""
    difference = norm = 0.0
    for a, b, s in zip(moved.parameters(), exact.parameters(), start.parameters()):
        difference += float((a.double() - b.double()).square().sum())
        norm += float((b.double() - s.double()).square().sum())
    return (difference / norm) ** 0.5


def apart(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other))


def one(step: Any, batch: Batch) -> float:
    """The loss of a step."""
    return float(step(**batch) if isinstance(batch, dict) else step(*batch))


def measured(name: str) -> dict[str, Any]:
    """What became of a model."""
    import memc.torch

    net, draw = built(name)
    start = copy.deepcopy(net)
    batches = [draw(number) for number in range(STEPS)]
    plain, exact = copy.deepcopy(net), copy.deepcopy(net).double()
    wanted, truth = eager(plain, name, batches), eager(exact, name, batches)
    after_one = copy.deepcopy(net), copy.deepcopy(net).double()
    for module in after_one:
        eager(module, name, batches[:1])
    begin = time.perf_counter()
    loss = "output" if isinstance(batches[0], dict) else "cross-entropy"
    step = memc.torch.compile_step(net, loss, optimizer_of(net, name), example=batches[0])
    compiled = time.perf_counter()
    losses = [one(step, batches[0])]
    first = time.perf_counter()
    updates = [off(module, after_one[1], start) for module in (net, after_one[0])]
    losses += [one(step, batch) for batch in batches[1:]]
    kept = start.state_dict()
    return {
        "parameters": sum(p.numel() for p in net.parameters()),
        "update_from_f64": updates[0],
        "eager_update_from_f64": updates[1],
        "loss": apart(losses, wanted),
        "loss_from_f64": apart(losses, truth),
        "eager_loss_from_f64": apart(wanted, truth),
        "weights": furthest(net, plain),
        "eager_weights_from_f64": furthest(plain, exact),
        "unmoved": sorted(n for n, p in net.named_parameters() if bool((p == kept[n]).all())),
        "unmoved_by_eager": sorted(n for n, p in plain.named_parameters() if bool((p == kept[n]).all())),
        "peak_bytes": step.report.peak_bytes,
        "arena_bytes": step.report.arena_bytes,
        "lower_bound_bytes": step.report.lower_bound_bytes,
        "unoptimized_bytes": step.report.unoptimized_bytes,
        "compile_seconds": round(compiled - begin, 1),
        "first_step_seconds": round(first - begin, 1),
    }


def run_cpu(path: Path, chosen: list[str]) -> None:
    """Measure models and keep what is found in a file of JSON; what fails is written down."""
    import torch

    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    for name in chosen or names():
        try:
            found[name] = measured(name)
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        print(name, json.dumps(found[name]), flush=True)
        path.write_text(json.dumps(found, indent=1))


def table(path: Path) -> str:
    """The table of what `run_cpu` found."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text())
    heads = (
        "model",
        "parameters",
        "update",
        "eager's",
        "loss",
        "eager's",
        "weights",
        "eager's",
        "peak MB",
        "arena MB",
        "bound MB",
    )
    lines = [
        f"| {' | '.join((*heads, 'unplanned MB', 'first step s'))} |",
        "| --- " + "| --: " * (len(heads) + 1) + "|",
    ]
    for name, row in ((n, found[n]) for n in names() if n in found):
        if "error" in row:
            lines.append(f"| {name} | {row['error']} |" + " |" * len(heads))
            continue
        keys = ("update_from_f64", "eager_update_from_f64", "loss", "eager_loss_from_f64", "weights")
        floats = (row[key] for key in (*keys, "eager_weights_from_f64"))
        planned = (row[f"{key}_bytes"] / 1e6 for key in ("peak", "arena", "lower_bound", "unoptimized"))
        cells = [f"{row['parameters']:,}", *(f"{v:.1e}" for v in floats), *(f"{v:.2f}" for v in planned)]
        lines.append(f"| {name} | {' | '.join(cells)} | {row['first_step_seconds']} |")
    return "\n".join(lines)

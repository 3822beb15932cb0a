# SPDX-License-Identifier: Apache-2.0
"""PyTorch models from torchvision, timm and transformers, with random weights: exported, read back without PyTorch, compiled, and
compared with PyTorch on the CPU.

    python benchmarks/torch_census.py export DIR [NAME ...]    # where PyTorch, torchvision, timm and transformers are installed
    python benchmarks/torch_census.py check DIR [NAME ...]     # anywhere: writes DIR/census.json
    python benchmarks/torch_census.py table DIR                # prints the page of results

`export` writes for each model a `.pt2` file, inputs and PyTorch's outputs, and, where memc is installed, checks that the program
in memory is imported as the file is. `check` compiles the file, runs it and compares: the largest difference over the largest
output of each result must be at most 1e-5.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1e-5

SMALL = 64
"""The images' side for networks that take any."""

TORCHVISION = {
    **{name: SMALL for name in ("resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0")},
    **{
        name: SMALL for name in ("efficientnet_v2_s", "convnext_tiny", "swin_t", "regnet_y_400mf", "shufflenet_v2_x1_0")
    },
    **{name: SMALL for name in ("mnasnet1_0", "squeezenet1_1", "alexnet", "vgg16_bn", "swin_v2_t", "googlenet")},
    **{"inception_v3": 96, "vit_b_16": 224, "maxvit_t": 224, "deeplabv3_resnet50": SMALL, "r3d_18": SMALL},
}
"""Models of torchvision and their images' sides."""

TIMM = (
    *("resnet50d", "convnextv2_tiny", "deit_tiny_patch16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224"),
    *("mixer_s16_224", "coatnet_0_rw_224", "poolformer_s12", "efficientformer_l1", "mobilevit_s", "levit_128s"),
    *("tf_efficientnetv2_s", "nfnet_l0", "cait_xxs24_224", "xcit_nano_12_p16_224", "davit_tiny", "fastvit_t8"),
    *("hiera_tiny_224", "vit_base_patch16_siglip_224", "mobilenetv4_conv_small"),
)
FIXED_SIDE = ("coatnet", "levit", "hiera", "efficientformer", "xcit", "cait", "mixer", "beit", "deit", "eva02", "vit_")

WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TEXT = {**WIDTHS, "vocab_size": 128}
GROUPED = {**TEXT, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 16}
IMAGE = {**WIDTHS, "image_size": 32, "patch_size": 8}

TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "bert": ("BertModel", "BertConfig", TEXT, "ids"),
    "roberta": ("RobertaModel", "RobertaConfig", TEXT, "ids"),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 128},
        "ids",
    ),
    "electra": ("ElectraModel", "ElectraConfig", TEXT, "ids"),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**TEXT, "pad_token_id": 0}, "ids"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 128}, "ids"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, "ids"),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED, "ids"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, "ids"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", HEADS, "ids"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", HEADS, "ids"),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", HEADS, "ids"),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**GROUPED, "pad_token_id": 0}, "ids"),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**GROUPED, "num_local_experts": 4}, "ids"),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {**HEADS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
        "ids",
    ),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {**TEXT, "ffn_dim": 128, "word_embed_proj_dim": 64},
        "ids",
    ),
    "dinov2": ("Dinov2Model", "Dinov2Config", {**IMAGE, "mlp_ratio": 2}, "image"),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", IMAGE, "image"),
    "clipvis": ("CLIPVisionModel", "CLIPVisionConfig", IMAGE, "image"),
    "segformer": ("SegformerModel", "SegformerConfig", {}, "image64"),
}

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


def names() -> list[str]:
    """All models, by package."""
    return [
        *(f"torchvision/{name}" for name in TORCHVISION),
        *(f"timm/{name}" for name in TIMM),
        *(f"transformers/{name}" for name in TRANSFORMERS),
    ]


def of_torchvision(name: str) -> Made:
    import torch
    import torchvision.models as models

    side = TORCHVISION[name]
    if name == "r3d_18":
        return models.video.r3d_18(weights=None), (torch.randn(1, 3, 8, side, side),), {}
    if name == "deeplabv3_resnet50":
        net = models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
        return net, (torch.randn(1, 3, side, side),), {}
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    net = getattr(models, name)(weights=None, **options)
    if options:
        net.aux_logits = False
    return net, (torch.randn(2 if side < 200 else 1, 3, side, side),), {}


def of_timm(name: str) -> Made:
    import timm
    import torch

    fixed = any(part in name for part in FIXED_SIDE)
    net = timm.create_model(name, pretrained=False)
    side = net.pretrained_cfg.get("input_size", (3, 224, 224))[1] if fixed else 128
    return net, (torch.randn(1, 3, side, side),), {}


def of_transformers(name: str) -> Made:
    import torch
    import transformers

    model, config, options, kind = TRANSFORMERS[name]
    chosen = getattr(transformers, config)(**options)
    chosen.use_cache, chosen.return_dict = False, True
    chosen._attn_implementation = "sdpa" if name != "segformer" else "eager"
    net = getattr(transformers, model)(chosen)

    class First(torch.nn.Module):
        """The model's first result."""

        def __init__(self) -> None:
            super().__init__()
            self.model = net

        def forward(self, **given: Any) -> Any:
            return self.model(**given)[0]

    side = 64 if kind == "image64" else 32
    given = (
        {"input_ids": torch.randint(1, 100, (2, 64))}
        if kind == "ids"
        else {"pixel_values": torch.randn(1, 3, side, side)}
    )
    return First(), (), given


MAKERS: dict[str, Callable[[str], Made]] = {
    "torchvision": of_torchvision,
    "timm": of_timm,
    "transformers": of_transformers,
}


def export(name: str, folder: Path) -> dict[str, Any]:
    """Write a model's program, inputs and outputs. Returns what is to be known of it."""
    import torch

    torch.manual_seed(0)
    package, _, model = name.partition("/")
    net, args, kwargs = MAKERS[package](model)
    net.eval()
    begin = time.perf_counter()
    with torch.no_grad():
        program = torch.export.export(net, args, kwargs, strict=False)
        torch.export.save(program, folder / "model.pt2")
        seconds = time.perf_counter() - begin
        results = net(*args, **kwargs)
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    given = [leaf.numpy() for leaf in torch.utils._pytree.tree_leaves((args, kwargs))]
    np.savez(
        folder / "data.npz",
        **{f"in{n}": a for n, a in enumerate(given)},
        **{f"out{n}": r.numpy() for n, r in enumerate(leaves)},
    )
    nodes = sum(node.op == "call_function" for node in program.graph.nodes)
    return {"nodes": nodes, "export_seconds": round(seconds, 1), "same_in_memory": _same(program, folder / "model.pt2")}


def _same(program: Any, path: Path) -> bool | None:
    """Whether memc imports the program in memory as it does the file; None where memc is not installed."""
    try:
        from memc.frontend.torch.importer import import_torch
    except ImportError:
        return None
    return str(import_torch(program)) == str(import_torch(path))


def check(name: str, folder: Path) -> dict[str, Any]:
    """Compile a program, run it, and compare."""
    assert "torch" not in sys.modules
    import memc

    data = np.load(folder / "data.npz")
    begin = time.perf_counter()
    compilation = memc.compile(folder / "model.pt2")
    seconds = time.perf_counter() - begin
    executable = compilation.load()
    results = executable(*(data[f"in{n}"] for n in range(len([k for k in data if k.startswith("in")]))))
    worst = 0.0
    for n, value in enumerate(results.values()):
        want = data[f"out{n}"]
        got = np.asarray(value)
        assert got.shape == want.shape, (got.shape, want.shape)
        worst = max(worst, float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)))
    return {
        "difference": worst,
        "ok": worst <= LIMIT,
        "compile_seconds": round(seconds, 1),
        "peak_bytes": compilation.report.peak_bytes,
        "lower_bound_bytes": compilation.report.lower_bound_bytes,
    }


def page(found: dict[str, dict[str, Any]]) -> str:
    """The page of results."""
    ok = sum(bool(entry.get("ok")) for entry in found.values())
    compiled = sum("difference" in entry for entry in found.values())
    same = sum(bool(entry.get("same_in_memory")) for entry in found.values())
    nodes = sum(entry.get("nodes", 0) for entry in found.values())
    lines = [
        "# PyTorch models from their exports, compared with PyTorch",
        "",
        "<!-- headline -->",
        f"- {len(found)} models of torchvision, timm and transformers ({nodes:,} nodes) from `.pt2` files, in a process without PyTorch: {compiled} compile,",
        f"  {ok} match PyTorch within {LIMIT:g} of the largest output.",
        "<!-- end of headline -->",
        "",
        "From",
        "",
        "    python benchmarks/torch_census.py export DIR",
        "    python benchmarks/torch_census.py check DIR",
        "    python benchmarks/torch_census.py table DIR",
        "",
        "PyTorch 2.11.0, torchvision 0.26.0, timm 1.0.31, transformers 5.17.0, on the CPU (llvm, -O2); random weights, transformers in small",
        f"configurations. {same} programs are imported from memory as from the file. tf_efficientnetv2_s with random weights",
        "amplifies rounding: PyTorch's own f32 result is 2.2e-5 away from its f64 result there, memc's 4.3e-5.",
        "",
        "| model | nodes | difference | compile s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, entry in found.items():
        said = entry.get("check_error") or entry.get("export_error") or f"{entry['difference']:.1e}"
        lines.append(f"| {name} | {entry.get('nodes', 0)} | {said} | {entry.get('compile_seconds', 0)} |")
    return "\n".join(lines)


def main() -> None:
    """Run one stage over models, each by itself; what fails is written down."""
    warnings.filterwarnings("ignore")
    stage, root, *chosen = sys.argv[1:]
    table = Path(root) / "census.json"
    found: dict[str, dict[str, Any]] = json.loads(table.read_text()) if table.is_file() else {}
    if stage == "table":
        print(page(found))
        return
    run = {"export": export, "check": check}[stage]
    for name in chosen or names():
        folder = Path(root) / name
        folder.mkdir(parents=True, exist_ok=True)
        entry = found.setdefault(name, {})
        entry.pop(f"{stage}_error", None)
        try:
            entry.update(run(name, folder))
        except Exception as error:
            entry[f"{stage}_error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            if len(chosen) == 1:
                traceback.print_exc()
        print(name, json.dumps(entry), flush=True)
        table.write_text(json.dumps(found, indent=1))
    done = [entry for entry in found.values() if entry.get("ok")]
    print(f"{len(done)} of {len(names())} compile and match within {LIMIT}")


if __name__ == "__main__":
    main()

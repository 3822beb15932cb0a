# SPDX-License-Identifier: Apache-2.0
"""One of the jobs that `estimate_jobs.py` estimates, as a script of PyTorch's: five steps of a model.

    python benchmarks/estimate_job.py '{"model": "resnet50", "batch": 32, "optimizer": "adam", "precision": "fp32", "mode": "train"}'

It needs torch, torchvision and transformers. Further keys: `zero` ("end": gradients are dropped after the step), `accumulate`,
`channels_last`, `benchmark` (cudnn.benchmark), `checkpoint` (gradient checkpointing).
"""

from __future__ import annotations

import json
import sys

import torch
import torch.nn.functional as F
from job_nets import Recurrent, UNet


def image_job(name: str, b: int):
    """A classifier of torchvision's, its batches and its loss."""
    import torchvision

    size = 299 if name == "inception_v3" else 224
    keywords = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    model = getattr(torchvision.models, name)(weights=None, **keywords)

    def batch():
        return torch.randn(b, 3, size, size, device="cuda"), torch.randint(0, 1000, (b,), device="cuda")

    def loss(m, x, y):
        o = m(x)
        if isinstance(o, tuple):
            o = o[0]
        return F.cross_entropy(o, y)

    return model, batch, loss


def text_job(name: str, b: int):
    """A transformer of transformers', or None."""
    import transformers as t

    t.logging.set_verbosity_error()
    llama = dict(
        vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12
    )
    classify, start = t.BertForSequenceClassification, dict(decoder_start_token_id=0, pad_token_id=0)
    jobs = {
        "bert_base": (classify, t.BertConfig, {}, 128, 30522),
        "bert_base_512": (classify, t.BertConfig, {}, 512, 30522),
        "gpt2": (t.GPT2LMHeadModel, t.GPT2Config, {}, 512, 50257),
        "t5_small": (t.T5ForConditionalGeneration, t.T5Config, start, 256, 32128),
        "llama_160m": (t.LlamaForCausalLM, t.LlamaConfig, llama, 1024, 32000),
    }
    made, config, keywords, length, words = jobs[name]

    def batch():
        x = torch.randint(0, words, (b, length), device="cuda")
        return (x, torch.randint(0, 2, (b,), device="cuda")) if made is classify else (x, x.clone())

    return made(config(**keywords)), batch, lambda m, x, y: m(input_ids=x, labels=y).loss


def unet_job(b: int):
    """Segmentation of 256 x 256 pixels."""

    def batch():
        return torch.randn(b, 3, 256, 256, device="cuda"), torch.randint(0, 10, (b, 256, 256), device="cuda")

    return UNet(), batch, lambda m, x, y: F.cross_entropy(m(x), y)


def recurrent_job(b: int):
    """Text of 64 words."""

    def batch():
        return torch.randint(0, 10000, (b, 64), device="cuda"), torch.randint(0, 10000, (b, 64), device="cuda")

    return Recurrent(), batch, lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten())


def job_of(name: str, b: int):
    """Model, batches and loss."""
    if name == "unet":
        return unet_job(b)
    if name == "lstm":
        return recurrent_job(b)
    return text_job(name, b) if name.startswith(("bert", "gpt2", "t5", "llama")) else image_job(name, b)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3),
    "momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-4),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 1e-4, fused=True),
    "adam_loop": lambda p: torch.optim.Adam(p, 1e-4, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-4),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-4),
}


def main() -> None:
    """Five steps."""
    job = json.loads(sys.argv[1])
    precision, train = job["precision"], job["mode"] == "train"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = bool(job.get("benchmark"))
    m, batch, loss = job_of(job["model"], job["batch"])
    m = m.to("cuda")
    if precision == "bf16":
        m = m.bfloat16()
    if job.get("channels_last"):
        m = m.to(memory_format=torch.channels_last)
    if job.get("checkpoint"):
        m.gradient_checkpointing_enable()
    m.train(train)
    opt = OPTIMIZERS[job["optimizer"]](m.parameters()) if train else None
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16_amp" else None
    amp = {"bf16_amp": torch.bfloat16, "fp16_amp": torch.float16}.get(precision)

    def data():
        x, y = batch()
        if x.is_floating_point() and precision == "bf16":
            x = x.bfloat16()
        if job.get("channels_last") and x.dim() == 4:
            x = x.to(memory_format=torch.channels_last)
        return x, y

    def step():
        if opt is None:
            with torch.no_grad():
                loss(m, *data())
                return
        if job.get("zero") != "end":
            opt.zero_grad()
        for _ in range(job.get("accumulate", 1)):
            x, y = data()
            with torch.autocast("cuda", amp, enabled=amp is not None):
                l = loss(m, x, y)
            (scaler.scale(l) if scaler else l).backward()
        if scaler:
            scaler.step(opt)
            scaler.update()
        else:
            opt.step()
        if job.get("zero") == "end":
            opt.zero_grad()

    for _ in range(5):
        step()


if __name__ == "__main__":
    main()

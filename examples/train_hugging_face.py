#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train GPT-2 of Hugging Face's transformers, with PyTorch alone or as one planned step under a budget of bytes.

    python examples/train_hugging_face.py --eager --device cuda --batch 8
    python examples/train_hugging_face.py --device cuda --batch 8 --budget 5GiB
    memc estimate examples/train_hugging_face.py --memory 8GiB -- --eager --device cuda --batch 8

Weights are random, tokens are a counting exercise that the model can learn: replace both by yours.
docs/guides/hugging_face_under_a_budget.md goes through it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def batches(given: argparse.Namespace) -> Iterator[torch.Tensor]:
    """Token ids, `batch` lines of `length`, that count upwards from a random start."""
    draw = torch.Generator().manual_seed(0)
    while True:
        start = torch.randint(0, given.vocabulary, (given.batch, 1), generator=draw)
        yield ((start + torch.arange(given.length)) % given.vocabulary).to(given.device)


def make_model(given: argparse.Namespace) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=given.vocabulary,
        n_positions=given.length,
        n_embd=given.width,
        n_layer=given.layers,
        n_head=given.width // 64,
        bos_token_id=0,
        eos_token_id=0,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
    )
    return GPT2LMHeadModel(config).train().to(given.device)


def next_token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def eager_step(model: GPT2LMHeadModel, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(tokens: torch.Tensor) -> torch.Tensor:
        loss = next_token_loss(model(tokens).logits, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def planned_step(
    model: GPT2LMHeadModel, optimizer: torch.optim.Optimizer, given: argparse.Namespace
) -> Callable[[torch.Tensor], torch.Tensor]:
    import memc.torch

    tokens = next(batches(given))
    step = memc.torch.compile_step(
        model, next_token_loss, optimizer, example=(tokens, tokens), memory_budget=given.budget
    )
    return lambda tokens: step(tokens, tokens)


def plan(model: GPT2LMHeadModel, optimizer: torch.optim.Optimizer, given: argparse.Namespace) -> None:
    """What the step would take on the target, which this machine need not have."""
    import memc.torch

    tokens = next(batches(given))
    compilation = memc.torch.compile_artifact(
        model,
        next_token_loss,
        optimizer,
        example=(tokens, tokens),
        memory_budget=given.budget,
        target=given.plan,
        plan_only=True,
    )
    report = compilation.report
    print(f"peak {report.peak_bytes:,} bytes of {given.plan}, {report.added_percent or 0.0:.1f} % of time added")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eager", action="store_true", help="PyTorch alone")
    parser.add_argument("--budget", help="bytes that the planned step may take: 5GiB")
    parser.add_argument("--plan", metavar="TARGET", help="only plan the step for TARGET: cuda")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()

    torch.manual_seed(0)
    model = make_model(given)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    if given.plan:
        return plan(model, optimizer, given)
    step = eager_step(model, optimizer) if given.eager else planned_step(model, optimizer, given)
    for number, tokens in zip(range(given.steps), batches(given)):
        print(f"step {number}: loss {step(tokens).item():.4f}")


if __name__ == "__main__":
    main()

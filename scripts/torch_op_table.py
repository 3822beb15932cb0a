#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes python/memc/estimation/data/pytorch_2_11_ops.json: what PyTorch's elementwise ops keep for the backward pass, and which
blocks each allocates and frees in it.

    python scripts/torch_op_table.py [FILE]

Needs torch 2.11 with CUDA, on a GPU or on the phantom device (`memc.estimation.phantom`): kernels need not compute, since only the caching allocator's
history and `saved_tensors_hooks` are read. Each op is run once on tensors of one size. An entry has

- `saved`: which operands (by number) or `out` the op keeps;
- `forward`, `backward`: events in order, `+N` for the N-th block allocated in the pass and `-N` for its being freed. Blocks that are
  not freed are results: the output, and gradients of the operands. `?` after a number: a mask of one byte for each element;
- `results`: the blocks of those gradients, in the order of the operands;
- `passed`: the operands whose gradient is that of the output, without a block of its own.

Keys are the op and its operands: `t` a tensor through which a gradient flows, `c` one without, `s` a number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

TABLE = Path(__file__).resolve().parent.parent / "python/memc/estimation/data/pytorch_2_11_ops.json"
NUMBER = 0.5

UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": torch.abs,
    "Celu": F.celu,
    "Clip": lambda x: torch.clamp(x, 0.0, 6.0),
    "Cos": torch.cos,
    "Elu": F.elu,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Gelu": F.gelu,
    "GeluTanh": lambda x: F.gelu(x, approximate="tanh"),
    "HardSigmoid": F.hardsigmoid,
    "HardSwish": F.hardswish,
    "LeakyRelu": F.leaky_relu,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Pow2": lambda x: x.pow(2),
    "Pow3": lambda x: torch.pow(x, 3.0),
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Rsqrt": torch.rsqrt,
    "Sigmoid": torch.sigmoid,
    "Silu": F.silu,
    "Sin": torch.sin,
    "Softplus": F.softplus,
    "Softmax": lambda x: torch.softmax(x, -1),
    "LogSoftmax": lambda x: torch.log_softmax(x, -1),
    "Sqrt": torch.sqrt,
    "Tanh": torch.tanh,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": torch.add,
    "Div": torch.div,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Mul": torch.mul,
    "Sub": torch.sub,
}
OPERANDS = {"tt": 2, "tc": 2, "ct": 2, "ts": 2, "st": 2}
SIZE = 1 << 20
"""Elements of the tensors that ops are run on."""


def history() -> list[dict[str, Any]]:
    """All events so far."""
    return [e for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] in ("alloc", "free_completed")]


def numbered(events: list[dict[str, Any]], number: dict[int, int]) -> list[str]:
    """+N and -N; frees of what was there before are left out. `number` gets the blocks that are left, by address."""
    found, made = [], 0
    for event in events:
        address = event["addr"]
        if event["action"] == "alloc":
            number[address] = made
            found.append(f"+{made}" + ("?" if event["size"] == SIZE else ""))
            made += 1
        elif address in number:
            found.append(f"-{number.pop(address)}")
    return found


def entry(run: Callable[..., Any], operands: list[Any]) -> dict[str, Any]:
    """What one op does."""
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    saved: list[Any] = []
    leaves = {x.untyped_storage().data_ptr(): at for at, x in enumerate(operands) if isinstance(x, torch.Tensor)}

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.append(x.untyped_storage().data_ptr() if x.is_cuda else 0)
        return x

    begin = len(history())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = run(*operands)
    middle = len(history())
    gradient = torch.empty_like(out)
    start = len(history())
    wanted = [x for x in tensors if x.requires_grad]
    found = torch.autograd.grad(out, wanted, gradient)
    end = history()
    names = []
    for pointer in saved:
        if pointer == out.untyped_storage().data_ptr():
            names.append("out")
        elif pointer in leaves:
            names.append(str(leaves[pointer]))
        elif pointer:
            names.append("other")
    through = [
        at for at, x in enumerate(found) if x.untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr()
    ]
    numbers = [at for at, x in enumerate(operands) if isinstance(x, torch.Tensor) and x.requires_grad]
    blocks: dict[int, int] = {}
    backward = numbered(end[start:], blocks)
    made = [x.untyped_storage().data_ptr() for at, x in enumerate(found) if at not in through]
    return {
        "saved": sorted(set(names)),
        "forward": numbered(end[begin:middle], {}),
        "backward": backward,
        "passed": [numbers[at] for at in through],
        "results": [blocks[pointer] for pointer in made],
    }


def operand(kind: str) -> Any:
    """A tensor, or a number."""
    if kind == "s":
        return NUMBER
    return torch.empty(SIZE // 1024, 1024, device="cuda", requires_grad=kind == "t")


def main() -> None:
    """Write the table."""
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None, stacks="python")
    table = {f"{name}:t": entry(run, [operand("t")]) for name, run in UNARY.items()}
    for name, run in BINARY.items():
        for kinds in OPERANDS:
            if "s" in kinds and name in ("Max", "Min"):
                continue
            if name == "Sub" and kinds == "st":
                table["Sub:st"] = entry(lambda a, b: torch.rsub(b, a), [operand(kind) for kind in kinds])
            elif name == "Div" and kinds == "st":
                table["Div:st"] = entry(lambda a, b: a / b, [operand(kind) for kind in kinds])
            elif kinds == "st":
                table[f"{name}:st"] = entry(lambda a, b, run=run: run(b, a), [operand(kind) for kind in kinds])
            else:
                table[f"{name}:{kinds}"] = entry(run, [operand(kind) for kind in kinds])
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(table.items())]
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what single ops of PyTorch's ask the allocator for, by which the hand-written rules of `memc estimate` are checked.

    python scripts/torch_single_ops.py FILE.json

Needs torch with CUDA, on a GPU or on the phantom device (`memc.estimation.phantom`): kernels need not compute, since only the caching
allocator's history is read. Each op runs alone, forward and backward, once the handles of cuBLAS are there. FILE has a row for each case:
the rule's op, its attributes, the operands (dims, and `x` for a tensor through which a gradient flows, `w` for a parameter, `c` for
another one, `i` for whole numbers; an order of axes in memory, where it is not the plain one), the dims of the result, and

- `forward`, `backward`: events in order, `+BYTES` for a block that is allocated, and `-N` for the N-th one of both passes being freed. The
  result lives on; its gradient, and what was there before, are no events.

For another release: write FILE with that torch, and compare it with `tests/data/torch_2_11_single_ops.json`; rows that differ are rules to
look at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

TOKENS = (8, 197, 768)
HEADS = (8, 12, 197, 64)


@dataclass(frozen=True)
class Case:
    """One op on operands of some dims."""

    op: str
    run: Callable[..., Any]
    operands: Sequence[tuple[str, tuple[int, ...]]]
    attributes: dict[str, Any] = field(default_factory=dict)
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By operand: its axes, the outermost in memory first."""
    half: bool = False


def convolution(x: Any, w: Any, b: Any = None, **how: Any) -> Any:
    return F.conv2d(x, w, b, **how)


def normalized(x: Any, w: Any, b: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(x, mean, variance, w, b, training=True)


def same(pad: int, stride: int = 1, group: int = 1) -> dict[str, Any]:
    """Attributes of a convolution."""
    return {"pads": [pad] * 4, "strides": [stride] * 2, "group": group}


CASES = {
    "convolution": Case(
        "Conv", lambda x, w: convolution(x, w, padding=1), [("x", (8, 64, 56, 56)), ("w", (64, 64, 3, 3))], same(1)
    ),
    "convolution with a bias": Case(
        "Conv",
        lambda x, w, b: convolution(x, w, b, padding=1),
        [("x", (8, 128, 112, 112)), ("w", (128, 128, 3, 3)), ("w", (128,))],
        same(1),
    ),
    "convolution of the input": Case(
        "Conv",
        lambda x, w, b: convolution(x, w, b, padding=1),
        [("c", (8, 3, 224, 224)), ("w", (64, 3, 3, 3)), ("w", (64,))],
        same(1),
    ),
    "depthwise convolution": Case(
        "Conv",
        lambda x, w: convolution(x, w, padding=1, groups=96),
        [("x", (8, 96, 56, 56)), ("w", (96, 1, 3, 3))],
        same(1, group=96),
    ),
    "transposed convolution": Case(
        "ConvTranspose",
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2),
        [("x", (4, 128, 128, 128)), ("w", (128, 64, 2, 2)), ("w", (64,))],
        same(0, 2),
    ),
    "batch normalization": Case(
        "BatchNormalization", normalized, [("x", (8, 64, 56, 56)), *[("w", (64,))] * 2, *[("c", (64,))] * 2]
    ),
    "max pool": Case(
        "MaxPool", lambda x: F.max_pool2d(x, 3, 2, 1), [("x", (8, 64, 112, 112))], {"kernel_shape": [3, 3]}
    ),
    "average pool": Case("AveragePool", lambda x: F.avg_pool2d(x, 2, 2), [("x", (8, 64, 56, 56))]),
    "mean of images": Case("GlobalAveragePool", lambda x: F.adaptive_avg_pool2d(x, 1), [("x", (8, 512, 7, 7))]),
    "ReLU": Case("Relu", F.relu, [("x", (8, 64, 56, 56))]),
    "ReLU6": Case("Clip", lambda x: F.relu6(x), [("x", (8, 64, 56, 56))]),
    "concatenation": Case(
        "Concat", lambda *x: torch.cat(x, 1), [("x", (8, 64, 28, 28)), ("x", (8, 32, 28, 28))], {"axis": 1}
    ),
    "linear": Case("Gemm", F.linear, [("x", (64, 512)), ("w", (1000, 512)), ("w", (1000,))]),
    "linear of tokens": Case("Linear", F.linear, [("x", TOKENS), ("w", (3072, 768)), ("w", (3072,))]),
    "linear without a bias": Case("Linear", F.linear, [("x", TOKENS), ("w", (3072, 768))]),
    "linear of transposed tokens": Case(
        "Linear", F.linear, [("x", TOKENS), ("w", (2304, 768)), ("w", (2304,))], {}, {0: (1, 0, 2)}
    ),
    "products of matrices": Case("MatMul", torch.matmul, [("x", HEADS), ("x", (8, 12, 64, 197))]),
    "products of transposed matrices": Case(
        "MatMul", torch.matmul, [("x", HEADS), ("x", (8, 12, 64, 197))], {}, {1: (0, 1, 3, 2)}
    ),
    "attention": Case("Attention", F.scaled_dot_product_attention, [("x", HEADS)] * 3),
    "attention of transposed heads": Case(
        "Attention", F.scaled_dot_product_attention, [("x", HEADS)] * 3, {}, dict.fromkeys(range(3), (0, 2, 1, 3))
    ),
    "attention with wide heads": Case("Attention", F.scaled_dot_product_attention, [("x", (2, 8, 256, 96))] * 3),
    "attention in 16 bits": Case("Attention", F.scaled_dot_product_attention, [("x", HEADS)] * 3, half=True),
    "layer normalization": Case(
        "LayerNormalization",
        lambda x, w, b: F.layer_norm(x, (768,), w, b),
        [("x", TOKENS), ("w", (768,)), ("w", (768,))],
    ),
    "layer normalization of transposed tokens": Case(
        "LayerNormalization",
        lambda x, w, b: F.layer_norm(x, (768,), w, b),
        [("x", TOKENS), ("w", (768,)), ("w", (768,))],
        {},
        {0: (1, 0, 2)},
    ),
    "dropout": Case("Dropout", lambda x: F.dropout(x, 0.1), [("x", TOKENS)]),
    "embedding": Case("Embedding", lambda w, i: F.embedding(i, w), [("w", (30522, 768)), ("i", (8, 128))]),
    "softmax": Case("Softmax", lambda x: torch.softmax(x, -1), [("x", (8, 12, 197, 197))]),
    "GELU": Case("Gelu", F.gelu, [("x", (8, 197, 3072))]),
    "SiLU": Case("Silu", F.silu, [("x", (8, 32, 112, 112))]),
    "sum": Case("Add", torch.add, [("x", TOKENS), ("x", TOKENS)]),
    "sum with a row": Case("Add", torch.add, [("x", TOKENS), ("w", (768,))]),
    "product": Case("Mul", torch.mul, [("x", TOKENS), ("x", TOKENS)]),
    "product with a row": Case("Mul", torch.mul, [("x", TOKENS), ("w", (768,))]),
    "product with a scale of channels": Case("Mul", torch.mul, [("x", (8, 1, 1, 96)), ("x", (8, 56, 56, 96))]),
    "quotient": Case("Div", torch.div, [("x", TOKENS), ("x", TOKENS)]),
    "mean of rows": Case("ReduceMean", lambda x: x.mean(-1, keepdim=True), [("x", TOKENS)], {"axes": [-1]}),
}


def history() -> list[dict[str, Any]]:
    """All events so far."""
    return [e for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] in ("alloc", "free_completed")]


def record(case: Case) -> dict[str, Any]:
    """What one op does."""
    kind = torch.bfloat16 if case.half else torch.float32
    operands = [operand(*each, case.orders.get(at), kind) for at, each in enumerate(case.operands)]
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(max_entries=100_000, context=None, stacks="python")
    out = case.run(*operands)
    middle = len(history())
    gradient = torch.empty(out.shape, dtype=out.dtype, device="cuda")
    dims, stride = list(out.shape), list(out.stride())
    start = len(history())
    found = torch.autograd.grad(out, [each for each in operands if each.requires_grad], gradient)
    events = history()
    del found
    made: dict[int, int] = {}
    count = 0
    rows: dict[str, list[str]] = {"forward": [], "backward": []}
    for at, event in enumerate(events):
        if middle <= at < start:
            continue
        phase = "forward" if at < middle else "backward"
        if event["action"] == "alloc":
            made[event["addr"]] = count
            count += 1
            rows[phase].append(f"+{event['size']}")
        elif event["addr"] in made:
            rows[phase].append(f"-{made.pop(event['addr'])}")
    return {
        "op": case.op,
        "attributes": case.attributes,
        "operands": [[sort, list(shape)] for sort, shape in case.operands],
        "orders": {str(at): list(order) for at, order in case.orders.items()},
        "half": case.half,
        "out": dims,
        "strides": stride,
        **rows,
    }


def operand(kind: str, shape: tuple[int, ...], order: tuple[int, ...] | None, element: torch.dtype) -> torch.Tensor:
    """A tensor of these dims."""
    if kind == "i":
        return torch.zeros(shape, dtype=torch.int64, device="cuda")
    if order is None:
        made = torch.empty(shape, dtype=element, device="cuda")
    else:
        whole = torch.empty([shape[axis] for axis in order], dtype=element, device="cuda")
        made = whole.permute([order.index(axis) for axis in range(len(shape))])
    return made.requires_grad_(kind != "c")


def main() -> None:
    """Write the rows."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    x = torch.empty(8, 8, device="cuda", requires_grad=True)
    F.linear(x, x, x[0]).sum().backward()  # The handles of cuBLAS take their workspaces.
    rows = {name: record(case) for name, case in CASES.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()]
    with open(sys.argv[1], "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Attention in training by memc's CUDA kernels: errors against f64, and times beside PyTorch's, in one run.

    python benchmarks/gpu_attention.py [--check] [--times] [--types bf16 f32] [--most 16384] [--out FILE.md]

Needs PyTorch, nvcc and a GPU, but no TVM: it compiles the kernels and their launches itself. `--check` compares results,
log-sum-exp and gradients of many shapes with the written-out form in f64, where PyTorch's own attention is compared too.
`--times` takes forward and backward together, causal, 16,384 positions in all and 2,048 columns of all heads: medians of
`--steps` steps. The sums of g times the result, which the gradients are given, are counted.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_attention_calls import TYPES, WIDTHS, Case, Library
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

TOLERANCES = {"f32": 1e-5, "tf32": 5e-3, "f16": 4e-3, "bf16": 3e-2}
POSITIONS, COLUMNS = 16384, 2048


def written_out(case: Case, operands: list[torch.Tensor], mask: torch.Tensor | None) -> list[torch.Tensor]:
    """Result, log-sum-exp and gradients in f64."""
    q, k, v, g = (x.detach().double() for x in operands)
    for x in (q, k, v):
        x.requires_grad_()
    share = case.heads // case.keyed
    wide_k, wide_v = (x.repeat_interleave(share, 1) for x in (k, v))
    scores = q @ wide_k.transpose(-1, -2) * case.depth**-0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask.double()
    if case.diagonal is not None:
        seen = torch.ones(case.queries, case.keys, dtype=torch.bool, device="cuda").tril(case.diagonal)
        scores = scores.masked_fill(~seen, -math.inf)
    result = scores.softmax(-1) @ wide_v
    gradients = torch.autograd.grad(result, (q, k, v), g)
    return [result.detach(), scores.logsumexp(-1).detach(), *gradients]


def of_torch(case: Case, operands: list[torch.Tensor], mask: torch.Tensor | None) -> list[torch.Tensor]:
    """The same but for the log-sum-exp by PyTorch's attention."""
    q, k, v, g = (x.detach() for x in operands)
    for x in (q, k, v):
        x.requires_grad_()
    if case.diagonal is not None:
        mask = torch.ones(case.queries, case.keys, dtype=torch.bool, device="cuda").tril(case.diagonal)
    given = {"attn_mask": mask, "enable_gqa": case.heads != case.keyed, "scale": case.depth**-0.5}
    result = scaled_dot_product_attention(q, k, v, **given)
    return [result.detach(), *torch.autograd.grad(result, (q, k, v), g)]


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, where a number of the tensor's usual size counts as 1, if that is larger."""
    if not torch.isfinite(found).all():
        return math.inf
    return float(((found.double() - expected).abs().max() / expected.square().mean().sqrt().clamp(min=1)).item())


CASES = [
    Case(2, 3, 128, 128, 64),
    Case(2, 3, 1000, 1000, 64, diagonal=0),
    Case(2, 3, 1000, 1000, 128, diagonal=0, behind=True),
    Case(1, 4, 513, 777, 80, diagonal=264),
    Case(2, 12, 300, 300, 64, heads_of_k=4, diagonal=0, behind=True),
    Case(2, 4, 197, 197, 96, mask="bool"),
    Case(1, 2, 130, 259, 256, diagonal=3),
    Case(1, 2, 130, 259, 200, 130, mask="added"),
    Case(2, 3, 33, 65, 10, 7, mask="added", behind=True),
    Case(3, 2, 1, 1, 64),
    Case(3, 2, 1, 500, 128, mask="bool"),
    Case(2, 2, 70, 40, 32, diagonal=0),
]


def check(library: Library, kinds: list[str]) -> bool:
    good = True
    for kind in kinds:
        for case in CASES:
            operands, mask = case.operands(kind), case.masks(kind)
            call = library.call(case, kind, operands, mask)
            call.step()
            torch.cuda.synchronize()
            found = [call.result, call.rows, call.of_q, call.of_k, call.of_v]
            first = [x.clone() for x in found]
            call.step()
            same = all(torch.equal(a, b) for a, b in zip(first, found))
            expected = written_out(case, operands, mask)
            errors = [error(a, b) for a, b in zip(found, expected)]
            theirs = of_torch(case, operands, mask)
            others = [error(a, b) for a, b in zip(theirs, [expected[0], *expected[2:]])]
            fits = same and max(errors) <= TOLERANCES[kind]
            good = good and fits
            shown = " ".join(f"{x:.1e}" for x in errors), " ".join(f"{x:.1e}" for x in others)
            print(
                f"{'ok ' if fits else 'BAD'} {kind} {case}: {shown[0]}; PyTorch {shown[1]}; same bits {same}",
                flush=True,
            )
    return good


def timed(step: Any, steps: int) -> float:
    """Milliseconds, the median."""
    for _ in range(3):
        step()
    found = []
    for _ in range(steps):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end))
    return median(found)


BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def torch_times(case: Case, kind: str, backend: SDPBackend | None, steps: int) -> list[float]:
    """Of forward, and of both."""
    q, k, v, g = case.operands(kind)
    for x in (q, k, v):
        x.requires_grad_()

    def forward() -> torch.Tensor:
        if backend is None:
            return scaled_dot_product_attention(q, k, v, is_causal=True)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=True)

    def both() -> None:
        torch.autograd.grad(forward(), (q, k, v), g)

    try:
        return [timed(forward, steps), timed(both, steps)]
    except RuntimeError:
        return [math.nan, math.nan]


def times(library: Library, kinds: list[str], widths: list[int], most: int, steps: int) -> list[str]:
    head = ["type", "columns", "positions", "memc forward", "keys and queries", "both"]
    names = ["default", *BACKENDS]
    head += [f"PyTorch {name}, forward" for name in names] + [f"{name}, both" for name in names] + ["memc / default"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    print(lines[0], flush=True)
    for kind in kinds:
        for width in widths:
            positions = 1024
            while positions <= most:
                case = Case(POSITIONS // positions, COLUMNS // width, positions, positions, width, diagonal=0)
                call = library.call(case, kind, case.operands(kind), None)
                own = [timed(x, steps) for x in (call.forward, call.backward, call.step)]
                fewer = max(3, steps // 2)
                both = [torch_times(case, kind, backend, fewer) for backend in (None, *BACKENDS.values())]
                row = [*own, *(x[0] for x in both), *(x[1] for x in both)]
                ratio = f"{own[2] / both[0][1]:.2f}"
                lines.append(f"| {kind} | {width} | {positions} | {' | '.join(f'{x:.3f}' for x in row)} | {ratio} |")
                print(lines[-1], flush=True)
                positions *= 4 if most > 8192 else 2
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="memc's source")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--types", nargs="*", default=["bf16", "f32"], choices=TYPES, help="of the times")
    parser.add_argument("--columns", nargs="*", type=int, default=[64, 128])
    parser.add_argument("--most", type=int, default=POSITIONS, help="positions")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, metavar="FILE.md")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    all_kernels = [(kind, width) for kind in TYPES for width in WIDTHS]
    some = [(kind, width) for kind in options.types for width in options.columns]
    library = Library(options.root, all_kernels if options.check else some, options.check)
    good = check(library, list(TYPES)) if options.check else True
    lines = times(library, options.types, options.columns, options.most, options.steps) if options.times else []
    if options.out:
        options.out.write_text("\n".join([f"Card: {torch.cuda.get_device_name()}", "", *lines]) + "\n")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())

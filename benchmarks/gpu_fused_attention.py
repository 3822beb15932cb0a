# SPDX-License-Identifier: Apache-2.0
"""The forward pass of attention in training on a GPU, by cuDNN's fused kernel and by memc's own, beside PyTorch's.

    python benchmarks/gpu_fused_attention.py prepare FILE.cubin [--arch sm_90]   # anywhere with nvcc: memc's kernels
    python benchmarks/gpu_fused_attention.py run FILE.cubin [--own] [--types bf16 f16]

`run` needs PyTorch, tvm-ffi and memc's library (MEMC_CORE names it where memc is not installed), but no TVM. A call without workspace, as with
`--own`, is memc's kernel's. Errors are the largest differences from the written-out form in f64.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from linked_package import link_package

WORKSPACE = 256
"""Bytes, as `ir/ops/library/cuda_attention.py` has them."""


@dataclass(frozen=True)
class Case:
    batch: int
    heads: int
    heads_of_k: int
    positions: int
    columns: int
    axis: int
    """Of positions: 1, heads behind them; or 2."""
    causal: bool

    def shape(self, heads: int) -> tuple[int, ...]:
        if self.axis == 1:
            return (self.batch, self.positions, heads, self.columns)
        return (self.batch, heads, self.positions, self.columns)


CASES = (
    Case(4, 12, 12, 1024, 64, 1, True),
    Case(4, 12, 12, 1024, 64, 2, True),
    Case(4, 12, 4, 1000, 64, 1, True),
    Case(1, 12, 4, 4096, 64, 1, True),
    Case(8, 16, 16, 2048, 128, 2, True),
    Case(2, 12, 12, 197, 64, 2, False),
    Case(3, 8, 8, 77, 80, 1, False),
    Case(2, 4, 4, 33, 128, 2, True),
    Case(16, 12, 12, 512, 64, 1, False),
    Case(1, 16, 16, 16384, 64, 2, True),
)


def prepare(args: argparse.Namespace) -> int:
    from memc.runtime.codegen.cuda_kernels import own_kernels, training_source

    sources = tuple(training_source(type, width, False) for type in ("bf16", "f16") for width in (64, 96, 128))
    args.cubin.write_bytes(own_kernels(args.arch, sources))
    return 0


def written_out(case: Case, operands: list[Any]) -> tuple[Any, Any]:
    """Result and log-sum-exp in f64, of heads before positions."""
    import torch

    q, k, v = (x.double() for x in operands)
    share = case.heads // case.heads_of_k
    k, v = (x.repeat_interleave(share, 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * case.columns**-0.5
    if case.causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v, torch.logsumexp(scores, -1)


def milliseconds(call: Callable[[], Any], times: int = 50) -> float:
    """The mean of some calls one after another."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / times


def measured(case: Case, dtype: Any, function: Any, own: bool) -> str:
    """A row of the table."""
    import torch

    torch.manual_seed(0)
    heads = (case.heads, case.heads_of_k, case.heads_of_k)
    q, k, v = (torch.randn(case.shape(n), dtype=dtype, device="cuda") for n in heads)
    result = torch.empty_like(q)
    log_sum = torch.empty(q.shape[:-1], dtype=torch.float32, device="cuda")
    scratch = [] if own else [torch.zeros(WORKSPACE, dtype=torch.uint8, device="cuda")]
    scalars = (3, case.axis, case.columns**-0.5, int(case.causal), 0, 0)

    def call() -> None:
        function(q, k, v, result, log_sum, *scratch, *scalars)

    turned = [x.transpose(1, 2) if case.axis == 1 else x for x in (q, k, v)]

    def of_torch() -> Any:
        gqa = case.heads != case.heads_of_k
        return torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=case.causal, enable_gqa=gqa)

    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    times = milliseconds(call), milliseconds(of_torch)
    before = result.view(torch.int16).clone(), log_sum.clone()
    call()
    same = torch.equal(before[0], result.view(torch.int16)) and torch.equal(before[1], log_sum)
    errors = ["", "", ""]
    if case.positions <= 4096:
        wanted, sums = written_out(case, turned)
        found, rows = (x.transpose(1, 2) if case.axis == 1 else x for x in (result, log_sum))
        pairs = ((found, wanted), (of_torch(), wanted), (rows, sums))
        errors = [f"{float((a.double() - b).abs().max()):.1e}" for a, b in pairs]
    cells = [
        str(dtype).split(".")[-1],
        *vars(case).values(),
        f"{first:.2f}",
        *(f"{ms:.3f}" for ms in times),
        *errors,
        same,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def run(args: argparse.Namespace) -> int:
    link_package()
    import torch
    import tvm_ffi

    from memc import native

    native.load()
    tvm_ffi.get_global_func("memc.cuda.set_libraries")(*native.cuda_paths())
    tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, args.cubin.read_bytes())
    function = tvm_ffi.get_global_func("memc.cuda.attention_training")
    names = [
        "type",
        *Case.__dataclass_fields__,
        "first call s",
        "ms",
        "PyTorch ms",
        "error",
        "PyTorch's",
        "log-sum-exp's",
        "same bits",
    ]
    print(f"| {' | '.join(names)} |\n{'| --- ' * len(names)}|")
    for dtype in ({"bf16": torch.bfloat16, "f16": torch.float16}[name] for name in args.types):
        for case in CASES:
            print(measured(case, dtype, function, args.own), flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("cubin", type=Path)
    verb.add_argument("--arch", default="sm_90")
    verb.set_defaults(verb=prepare)
    verb = verbs.add_parser("run")
    verb.add_argument("cubin", type=Path)
    verb.add_argument("--own", action="store_true", help="memc's kernel alone")
    verb.add_argument("--types", nargs="+", choices=("bf16", "f16"), default=["bf16", "f16"])
    verb.set_defaults(verb=run)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())

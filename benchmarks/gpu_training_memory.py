# SPDX-License-Identifier: Apache-2.0
"""Device memory of training steps against the plan, and what recomputation costs, on two machines: one has the GPU.

    python benchmarks/gpu_training_memory.py prepare --models DIR --cache CACHE --out FOLDER [--batch 32] [--sublinear] NAME ...
    python benchmarks/gpu_training_memory.py run FOLDER [--json FILE] [--markdown FILE]

`prepare` compiles the training step (cross entropy, SGD) of each model of DIR/training without a memory budget, and with
budgets that leave 75 and 50 % of its arena. With `--sublinear`, once more with what `--mirror sublinear` drops and
recomputes, the plan of Chen et al. 2016 for whatever memory it takes. With `--equal` it compiles each once more with the largest workspaces that are of
use, even if the arena grows, so that a call of a library has one algorithm under every budget, a deterministic one, and
losses can be compared bit for bit.
The weights are drawn from a seed where the step runs, each step in a process of its own.

Memory is what the driver says is in use on the device, in bytes, which it gives out in steps of 2 MiB. `plan` is the peak that
the compiler reported: arena, weights and states, inputs and outputs. `measured` is what is in use after the steps beyond
what it was once the process had a CUDA context, `constant` their difference: cuDNN, cuBLASLt and the kernels' code, whatever
the budget. `second` is what a second copy of the same step takes in the same process, less the plan: the libraries are
loaded already, and there are code and, unlike in the first copy, a CUDA graph. `growth` is what came after the third step.
Times are of the second copy. `repeated` says whether its losses are the first one's, bit for bit.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_artifacts import draw_feeds, fill, strip, vocabularies
from gpu_compare import card, start_device, used_memory
from gpu_rows import measured_apart, write_down
from gpu_speed import median_ms
from linked_package import link_package

SHARES = ("100", "75", "50")
"""Percent of the arena without recomputation."""

SUBLINEAR = "sublinear"
"""In place of a share: the plan that has no budget."""

STEPS = 8
"""Steps before memory is read and whose losses are compared."""

MIB = 2**20


def prepare(args: argparse.Namespace) -> int:
    import models as all_models

    import memc

    for name in args.names:
        (model,) = [m for m in all_models.MODELS if m.name == f"training/{name}"]
        path = model.path(args.models, args.cache)
        whole: Any = None  # Of the step without a budget and workspaces that cost anything.
        for kind in ("free", "equal") if args.equal else ("free",):
            for share in (*args.shares, *([SUBLINEAR] if args.sublinear and kind == "free" else [])):
                start = time.perf_counter()
                folder = args.out / name / f"{kind}.{share}.memc"
                budget: int | None = None
                if share not in ("100", SUBLINEAR):
                    budget = whole.peak_bytes - whole.arena_bytes * (100 - int(share)) // 100
                done = memc.compile(
                    str(path),
                    folder,
                    target="cuda",
                    arch=args.arch,
                    input_shapes=model.shapes(args.batch),
                    train=memc.BuildGradient(optimizer="sgd", mirror="sublinear" if share == SUBLINEAR else "none"),
                    memory_budget=budget if kind == "free" else None,
                    pass_pipeline=None if kind == "free" else generous(budget),
                )
                report = done.report
                whole = whole or report
                facts = {"peak": report.peak_bytes, "arena": report.arena_bytes, "budget": budget, "batch": args.batch}
                strip(folder)
                (folder / "facts.json").write_text(json.dumps(facts | {"below": vocabularies(model)}))
                spent = time.perf_counter() - start
                sizes = f"peak {report.peak_bytes:,} B, arena {report.arena_bytes:,} B"
                print(f"{name} {kind} {share}: {sizes}, {report.kernels} kernels, {spent:.0f} s", flush=True)
    return 0


def generous(budget: int | None) -> str:
    """The pipeline under a budget, but with workspaces as large as they are of use."""
    from memc.ir.ops.library.cuda_conv import MOST_WORKSPACE
    from memc.passes.pipelines import pipeline

    text = pipeline(2, "cuda", memory_budget=budget)
    return text.replace("select-workspace", f"select-workspace{{beyond={MOST_WORKSPACE}}}")


def run(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + args.seconds
    for folder in sorted(args.folder.glob("*/*.memc"), key=lambda p: (p.parent.name, p.name)):
        left = end - time.monotonic()
        if left < 15:
            break
        names = dict(zip(("kind", "share"), folder.stem.split(".")))
        row, said = measured_apart([sys.executable, __file__, "one", str(folder)], left)
        if "note" not in row:
            row["warnings"] = said.count("differs in its last bits")
        rows.append({"model": folder.parent.name, **names, **row})
        write_down(rows, table, args)
    print(table(rows))
    return 0


def one(args: argparse.Namespace) -> int:
    """Print what one artifact takes, as JSON."""
    link_package()
    import tvm
    import tvm_ffi

    from memc.runtime.execute.executable import Executable
    from memc.runtime.execute.load import load

    facts = json.loads((args.folder / "facts.json").read_text())
    idle = used_memory()
    start_device()
    began = in_use()
    row: dict[str, Any] = {"context": used_memory() - idle, "plan": facts["peak"], "arena": facts["arena"]}
    with tempfile.TemporaryDirectory() as temporary:
        fill(args.folder, Path(temporary) / "step.memc")
        step = load(Path(temporary) / "step.memc", cuda_graph=False)
        if args.folder.stem.startswith("equal"):
            tvm_ffi.get_global_func("memc.cuda.set_measure")(False)
        feeds = draw_feeds(step.inputs, facts["below"])
        row["losses"], used = losses_of(step, feeds)
        row["measured"], row["growth"] = used[-1] - began, used[-1] - used[2]
        before = in_use()
        again = load(Path(temporary) / "step.memc")
        losses, used = losses_of(again, feeds)
        row["repeated"] = losses == row["losses"]
        row["second"], row["growth"] = used[-1] - before - facts["peak"], max(row["growth"], used[-1] - used[2])
        placed = again.placed_inputs(feeds)

        def call() -> object:
            return Executable.__call__(again, **placed)

        row["ms"] = median_ms(call, tvm.cuda(0).sync, runs=30, warm=5)
    print(json.dumps(row))
    return 0


def losses_of(step: Any, feeds: dict[str, Any]) -> tuple[list[str], list[int]]:
    """The losses of some steps, exactly, and the bytes in use after each."""
    losses, used = [], []
    for _ in range(STEPS):
        losses.append(float(step(**feeds)).hex())
        used.append(in_use())
    return losses, used


def in_use() -> int:
    """Bytes in use on the device, by anyone. Needs a CUDA context."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    status = ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if status:
        raise RuntimeError(f"cuMemGetInfo: error {status}")
    return total.value - free.value


def table(rows: list[dict[str, Any]]) -> str:
    """Sizes in MiB; the budgets' times and losses beside those without one."""
    head = ["model", "workspaces", "arena %", "plan MiB", "measured MiB", "constant MiB", "second MiB", "growth B"]
    head += ["ms", "slow-down", "last loss", "repeated", "losses against 100 %"]
    lines = [f"Card: {card()}", "", "| " + " | ".join(head) + " |", "| --- | --- " + "| --: " * (len(head) - 2) + "|"]
    constants: dict[tuple[str, str], list[float]] = {}
    whole: dict[tuple[str, str], dict[str, Any]] = {}
    order = (*SHARES, SUBLINEAR)
    for row in sorted(rows, key=lambda r: (r["model"], r["kind"], order.index(r["share"]))):
        if "note" in row:
            lines.append(f"| {row['model']} | {row['kind']} | {row['share']} | {row['note'].splitlines()[-1][:200]} |")
            continue
        key = (row["model"], row["kind"])
        first = whole.setdefault(key, row)
        constant = (row["measured"] - row["plan"]) / MIB
        constants.setdefault(key, []).append(constant)
        sizes = [row["plan"] / MIB, row["measured"] / MIB, constant, row["second"] / MIB]
        share = f"{100 * row['arena'] / first['arena']:.1f}" + (" (sublinear)" if row["share"] == SUBLINEAR else "")
        cells = [row["model"], row["kind"], share, *(f"{s:.2f}" for s in sizes)]
        cells += [str(row["growth"]), f"{row['ms']:.2f}", f"{100 * (row['ms'] / first['ms'] - 1):+.1f} %"]
        cells += [f"{float.fromhex(row['losses'][-1]):.6f}", "yes" if row["repeated"] else "no"]
        cells += [compared(row["losses"], first["losses"])]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for (name, kind), found in constants.items():
        lines.append(f"{name}, {kind}: the constant is {min(found):.2f} to {max(found):.2f} MiB.")
    warned = [f"{row['model']} {row['kind']} {row['share']}" for row in rows if row.get("warnings")]
    lines.append(f"With calls that have no deterministic algorithm in their workspace: {', '.join(warned) or 'none'}.")
    contexts = sorted({row["context"] // MIB for row in rows if "context" in row})
    lines.append(f"The process's CUDA context, before any of this: {contexts} MiB.")
    return "\n".join(lines)


def compared(losses: list[str], expected: list[str]) -> str:
    """`equal` if all losses have the same bits, else the largest relative difference."""
    if losses == expected:
        return "equal"
    found, want = ([float.fromhex(x) for x in side] for side in (losses, expected))
    return f"{max(abs(a - b) / abs(b) for a, b in zip(found, want)):.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare", help="compile here, without a GPU")
    first.add_argument("names", nargs="+")
    first.add_argument("--models", type=Path, required=True)
    first.add_argument("--cache", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--arch", default="sm_90")
    first.add_argument("--batch", type=int, default=32)
    first.add_argument("--shares", nargs="+", choices=SHARES, default=SHARES, help="of the arena, 100 first")
    first.add_argument("--sublinear", action="store_true", help="also the plan that --mirror sublinear makes")
    first.add_argument("--equal", action="store_true", help="also with workspaces that depend on the op alone")
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="measure on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--seconds", type=float, default=3600, help="stop beginning artifacts after that many")
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    second.set_defaults(verb=run)
    third = verbs.add_parser("one", help="measure one artifact; what `run` calls")
    third.add_argument("folder", type=Path)
    third.set_defaults(verb=one)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())

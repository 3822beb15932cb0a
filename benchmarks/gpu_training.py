# SPDX-License-Identifier: Apache-2.0
"""Compares training steps on a GPU with the same steps on the CPU, on two machines: one compiles, one has the GPU.

    python benchmarks/gpu_training.py prepare FOLDER [--arch sm_90] [--steps 5] [--batch 16] [--precision f32]
    python benchmarks/gpu_training.py run FOLDER [--markdown FILE]

`prepare` compiles each model of `training_models.py` with each optimizer for both targets, takes the steps on the CPU, and
stores CUDA artifacts, losses and states; on the CPU in half precision, too, if that is what is compared. `run` takes the same steps on the GPU. The error of a state is
norm(GPU - CPU) / norm(CPU - before), so what counts is how far the steps moved it; a step's is that of its worst state.
`run` needs what `gpu_compare.py run` needs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_compare import card
from linked_package import link_package

TOLERANCES = {"f32": 1e-3, "tf32": 1e-1, "f16": 5e-2, "bf16": 2e-1}
RATES = {"sgd": 0.05, "adam": 0.01}


def prepare(args: argparse.Namespace) -> int:
    from training_models import MODELS, batch_of

    import memc

    args.folder.mkdir(parents=True, exist_ok=True)
    for name, build in ((n, b) for n, b in MODELS.items() if n in (args.only or MODELS)):
        for optimizer, rate in RATES.items():
            model, folder = build(), args.folder / f"{name}.{optimizer}"
            # A scale at which no device overflows: a step that only one of them skips would say nothing.
            scale = "1024" if args.precision == "f16" else None
            how = memc.BuildGradient(optimizer=optimizer, loss_scale=scale)
            options: dict[str, Any] = {"dims": {"batch": args.batch}, "train": how}
            on_gpu = {"target": "cuda", "arch": args.arch, "precision": args.precision}
            done = memc.compile(model, folder / "step.memc", **on_gpu, **options)
            on_cpu = args.precision if args.precision in ("f16", "bf16") else "f32"
            step = memc.compile(model, precision=on_cpu, **options).load()
            step.learning_rate = rate
            before = step.state()
            batches = [batch_of(model, args.batch, seed) for seed in range(args.steps)]
            losses = [step(*batch) for batch in batches]
            stored = {f"before/{k}": v for k, v in before.items()} | {f"after/{k}": v for k, v in step.state().items()}
            for number, (x, labels) in enumerate(batches):
                stored[f"x/{number}"], stored[f"labels/{number}"] = x, labels
            np.savez(folder / "steps.npz", **stored)
            facts = {"rate": rate, "losses": losses, "arena": done.report.arena_bytes, "precision": args.precision}
            (folder / "facts.json").write_text(json.dumps(facts))
            print(f"{name}, {optimizer}: {done.report.kernels} kernels", flush=True)
    return 0


def run(args: argparse.Namespace) -> int:
    link_package()
    lines = ["| model | optimizer | arena B | loss, first and last | loss error | state error |", "| --- " * 6 + "|"]
    worst = allowed = 0.0
    for folder in sorted(p for p in args.folder.iterdir() if (p / "facts.json").is_file()):
        allowed = TOLERANCES[json.loads((folder / "facts.json").read_text())["precision"]]
        row, error = run_one(folder)
        worst = max(worst, error)
        lines.append(row)
        print(row, flush=True)
    text = "\n".join([f"Card: {card()}", "", *lines])
    if args.markdown:
        args.markdown.write_text(text + "\n")
    print(f"worst error {worst:.2e}, tolerance {allowed}")
    return int(not worst < allowed)


def run_one(folder: Path) -> tuple[str, float]:
    """The row of one model and optimizer, and the larger of its errors."""
    import memc

    facts = json.loads((folder / "facts.json").read_text())
    stored = np.load(folder / "steps.npz")
    step = memc.load(folder / "step.memc")
    step.learning_rate = facts["rate"]
    losses = [step(stored[f"x/{n}"], stored[f"labels/{n}"]) for n in range(len(facts["losses"]))]
    of_loss = max(abs(a - b) / abs(b) for a, b in zip(losses, facts["losses"]))
    of_state = 0.0
    for name, found in step.state().items():
        before, after = stored[f"before/{name}"].astype(np.float64), stored[f"after/{name}"].astype(np.float64)
        moved = float(np.linalg.norm(after - before))
        distance = float(np.linalg.norm(found - after))
        # Weights that hardly move, such as a bias before a batch norm, hold nothing but rounding.
        of_state = max(of_state, distance / max(moved, 1e-3 * float(np.linalg.norm(after)), 1e-6))
    name, optimizer = folder.name.rsplit(".", 1)
    shown = f"{facts['losses'][0]:.4f}, {facts['losses'][-1]:.4f}"
    return f"| {name} | {optimizer} | {facts['arena']:,} | {shown} | {of_loss:.1e} | {of_state:.1e} |", max(
        of_loss, of_state
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--arch", default="sm_90")
    verb.add_argument("--steps", type=int, default=5)
    verb.add_argument("--batch", type=int, default=16)
    verb.add_argument("--precision", default="f32", help="on the GPU")
    verb.add_argument("--only", nargs="*", help="names of models")
    verb.set_defaults(verb=prepare)
    verb = verbs.add_parser("run")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--markdown", type=Path)
    verb.set_defaults(verb=run)
    args = parser.parse_args()
    status: int = args.verb(args)
    return status


if __name__ == "__main__":
    sys.exit(main())

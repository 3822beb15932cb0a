# SPDX-License-Identifier: Apache-2.0
"""Time and memory on a GPU of training steps with attention as one op that keeps no scores, and written out, on two machines.

    python benchmarks/gpu_attention_steps.py prepare FOLDER --models DIR [--arch sm_90] [CASE ...]
    python benchmarks/gpu_attention_steps.py run FOLDER [--steps 20] [--seconds 100] [--markdown FILE]

A case is MODEL:PRECISION, MODEL one of `MODELS`. `prepare` compiles a step of AdamW in both ways, without a GPU. `run` takes steps of one
way after the other, each alone on the device, with weights from a seed: medians of times, planned bytes, and how far the losses of the
first steps are from each other. It needs what `gpu_compare.py run` needs.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_artifacts import fill, strip
from gpu_compare import card
from gpu_step_times import interleaved
from linked_package import link_package

MODELS = {
    "gpt2": ("transformers/gpt2_b4_s1024.onnx", 50257),
    "llama160": ("transformers/llama160_b4_s1024.onnx", 32000),
}
"""File, and how many words there are."""
WAYS = {"one op": True, "written out": False}
CASES = ("gpt2:bf16", "llama160:bf16", "gpt2:f32", "gpt2:tf32")
LOSSES = 4


def prepare(args: argparse.Namespace) -> int:
    from attention_memory import frozen
    from seeded_weights import write_external

    import memc

    for case in args.cases or CASES:
        name, precision = case.split(":")
        file, words = MODELS[name]
        folder = args.folder / case.replace(":", ".")
        with tempfile.TemporaryDirectory() as temporary:
            path = write_external(args.models / file, Path(temporary))
            train = frozen(path, memc.BuildGradient(optimizer="adamw"), {})
            for way, attention in WAYS.items():
                start = time.perf_counter()
                artifact = folder / f"{way}.memc"
                how = {"target": "cuda", "arch": args.arch, "precision": precision}
                done = memc.compile(str(path), artifact, train=replace(train, attention=attention), **how)
                size = strip(artifact)
                spent = time.perf_counter() - start
                arena = done.report.arena_bytes
                print(f"{case} {way}: arena {arena:,} B, {size / 2**20:.2f} MiB, {spent:.0f} s", flush=True)
        (folder / "case.json").write_text(json.dumps({"case": case, "words": words}))
    return 0


def run(args: argparse.Namespace) -> int:
    link_package()
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + args.seconds
    for folder in sorted(p for p in args.folder.iterdir() if (p / "case.json").is_file()):
        for artifact in sorted(folder.glob("*.memc")):
            if time.monotonic() + 15 > end:
                break
            rows.append(measured(folder, artifact, args.steps))
            print(rows[-1], flush=True)
            text = "\n".join([f"Card: {card()}", "", *table(rows)])
            if args.markdown:
                args.markdown.write_text(text + "\n")
    print("\n".join(table(rows)))
    return 0


def measured(folder: Path, artifact: Path, steps: int) -> dict[str, Any]:
    """One way of a case."""
    import tvm

    import memc

    facts = json.loads((folder / "case.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        fill(artifact, Path(temporary) / artifact.name)
        step = memc.load(Path(temporary) / artifact.name)
        batch = feeds(step, facts["words"])
        losses = [float(step(*batch)) for _ in range(LOSSES)]
        times = interleaved({"": lambda step=step: step(*batch)}, tvm.cuda(0).sync, steps, warm=2)[""]  # type: ignore[misc]
    peak = step.manifest.footprint
    found = {"ms": statistics.median(times), "peak": peak.peak, "arena": peak["arena"], "losses": losses}
    step = None
    gc.collect()  # The next one has the device for itself.
    return {"case": facts["case"], "way": artifact.stem, **found}


def feeds(step: Any, words: int) -> list[Any]:
    """The batch of a step from a seed: words and labels, or numbers."""
    rng = np.random.default_rng(0)
    specs = [spec for spec in step.inputs if spec.name != "learning_rate"]
    return [
        rng.integers(0, words if spec.dtype == "i64" else 2, spec.shape)
        if spec.dtype.startswith("i")
        else rng.standard_normal(spec.shape, np.float32)
        for spec in specs
    ]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown."""
    lines = ["| case | attention | ms | arena MB | peak MB | losses away |", "| --- " * 6 + "|"]
    first = {row["case"]: row["losses"] for row in reversed(rows)}
    for row in rows:
        away = max(abs(a - b) / abs(b) for a, b in zip(row["losses"], first[row["case"]]))
        sizes = [f"{row[what] / 1e6:,.1f}" for what in ("arena", "peak")]
        cells = [row["case"], row["way"], f"{row['ms']:.2f}", *sizes, f"{away:.1e}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("folder", type=Path)
    verb.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    verb.add_argument("--models", type=Path, required=True)
    verb.add_argument("--arch", default="sm_90")
    verb.set_defaults(verb=prepare)
    verb = verbs.add_parser("run")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--steps", type=int, default=20)
    verb.add_argument("--seconds", type=float, default=100)
    verb.add_argument("--markdown", type=Path)
    verb.set_defaults(verb=run)
    args = parser.parse_args()
    status: int = args.verb(args)
    return status


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Time and memory on a GPU of training steps whose large values run in slices, beside the same steps whole, on two machines.

    python benchmarks/gpu_chunk.py prepare FOLDER --models DIR [--arch sm_90] [CASE ...]
    python benchmarks/gpu_chunk.py run FOLDER [--steps 20] [--seconds 100] [--markdown FILE] [--json FILE]

A case is MODEL:PRECISION, MODEL one of `MODELS`. `prepare` compiles a step of AdamW of each case in each of `WAYS`, without a GPU;
`run` takes the same steps of all of them in turn, with weights from a seed, and prints medians, planned bytes and how far the losses of
the first steps are from those of the whole one. It needs what `gpu_compare.py run` needs.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
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
    "head": ("", 151936),
}
"""File and classes; `head` is a product with a square weight and the head of a language model behind it."""
WAYS = {
    "whole": "none",
    "chunk": "",
    "rows4": "by=rows slices=4",
    "classes": "by=classes",
    "classes16": "by=classes slices=16",
}
"""The option of the pass `chunk`; `none` for no such pass."""
HEAD_ALONE = ("rows4", "classes16")
"""Ways of the head alone."""
CASES = ("gpt2:bf16", "llama160:bf16", "head:bf16", "gpt2:f32")
LOSSES = 4
RATE = 1e-4
WIDTH = 896


def head(folder: Path) -> Path:
    """A model of [4,1024,896] whose classes are 151,936, without its weights' data, which are zeros."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    classes = MODELS["head"][1]
    shapes = {"w": (WIDTH, WIDTH), "u": (classes, WIDTH)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Transpose", ["u"], ["v"], perm=[1, 0]),
        helper.make_node("MatMul", ["h", "v"], ["z"]),
        helper.make_node("Transpose", ["z"], ["logits"], perm=[0, 2, 1]),
    ]
    made = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 1024, WIDTH])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, classes, 1024])],
        [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in shapes.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "head.onnx"
    onnx.save(model, path, save_as_external_data=True, location="head.weights")
    return path


def prepare(args: argparse.Namespace) -> int:
    from attention_memory import frozen
    from seeded_weights import write_external

    import memc

    for case in args.cases or CASES:
        name, precision = case.split(":")
        with tempfile.TemporaryDirectory() as temporary:
            file, classes = MODELS[name]
            path = write_external(args.models / file, Path(temporary)) if file else head(Path(temporary))
            train = frozen(path, memc.BuildGradient(optimizer="adamw"), {})
            for way, option in WAYS.items():
                if (name != "head" and way in HEAD_ALONE) or way not in (args.ways or WAYS):
                    continue
                start = time.perf_counter()
                folder = args.folder / case.replace(":", ".") / f"{way}.memc"
                done = compile_way(path, folder, train, precision, args.arch, option)
                size = strip(folder)
                spent = time.perf_counter() - start
                print(f"{case} {way}: arena {done.arena_bytes:,} B, {size / 2**20:.2f} MiB, {spent:.0f} s", flush=True)
        facts = {"case": case, "classes": classes}
        (args.folder / case.replace(":", ".") / "case.json").write_text(json.dumps(facts))
    return 0


def compile_way(path: Path, folder: Path, train: Any, precision: str, arch: str, option: str) -> Any:
    """Compile a step with `chunk` as an option says; its report."""
    import memc
    from memc.passes.pipelines import pipeline

    options: dict[str, Any] = {"target": "cuda", "arch": arch, "precision": precision, "train": train}
    if option == "none":
        options["disabled_passes"] = ["chunk"]
    elif option:
        text = pipeline(2, "cuda", precision="f32" if precision == "bf16" else precision)
        options["pass_pipeline"] = text.replace("chunk{heads}", f"chunk{{heads {option}}}")
    return memc.compile(str(path), folder, **options).report


def run(args: argparse.Namespace) -> int:
    link_package()
    rows, end = [], time.monotonic() + args.seconds
    for folder in sorted(p for p in args.folder.iterdir() if (p / "case.json").is_file()):
        if time.monotonic() + 15 > end:
            break
        rows += measured(folder, args.steps, end)
        text = "\n".join([f"Card: {card()}", "", *table(rows)])
        if args.markdown:
            args.markdown.write_text(text + "\n")
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))
    print("\n".join(table(rows)))
    return 0


def measured(folder: Path, steps: int, end: float) -> list[dict[str, Any]]:
    """Rows of one case."""
    import tvm

    import memc

    facts = json.loads((folder / "case.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        loaded: dict[str, Any] = {}
        for artifact in sorted(folder.glob("*.memc"), key=lambda p: list(WAYS).index(p.stem)):
            whole = Path(temporary) / artifact.name
            fill(artifact, whole)
            loaded[artifact.stem] = memc.load(whole)
        rng = np.random.default_rng(0)
        some = next(iter(loaded.values()))
        batch = feeds(some, facts["classes"], rng)
        for step in loaded.values():
            step.learning_rate = RATE
        losses = {way: [float(step(*batch)) for _ in range(LOSSES)] for way, step in loaded.items()}
        calls = {way: lambda step=step: step(*batch) for way, step in loaded.items()}
        times = interleaved(calls, tvm.cuda(0).sync, steps, warm=2)
    base = losses.get("whole") or next(iter(losses.values()))
    rows = []
    for way, step in loaded.items():
        peak = step.manifest.footprint
        away = max(abs(a - b) / abs(b) for a, b in zip(losses[way], base))
        ms = statistics.median(times[way])
        rows.append(
            {
                "case": facts["case"],
                "way": way,
                "ms": ms,
                "losses": losses[way],
                "away": away,
                "peak": peak.peak,
                "arena": peak["arena"],
            }
        )
        print(rows[-1], flush=True)
    loaded.clear()
    gc.collect()
    return rows


def feeds(step: Any, classes: int, rng: np.random.Generator) -> list[Any]:
    """The batch of a step: input and labels."""
    found = []
    for spec in step.inputs:
        if spec.name == "learning_rate":
            continue
        is_index = spec.dtype.startswith("i")
        data = rng.integers(0, classes, spec.shape) if is_index else rng.standard_normal(spec.shape, np.float32)
        found.append(data if is_index else data * np.float32(WIDTH**-0.5))
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown."""
    lines = ["| case | way | ms | beside whole | arena MB | peak MB | losses away |", "| --- " * 7 + "|"]
    whole = {row["case"]: row["ms"] for row in rows if row["way"] == "whole"}
    for row in rows:
        ratio = row["ms"] / whole[row["case"]] if row["case"] in whole else float("nan")
        cells = [row["case"], row["way"], f"{row['ms']:.2f}", f"{ratio:.3f}"]
        cells += [f"{row['arena'] / 1e6:,.1f}", f"{row['peak'] / 1e6:,.1f}", f"{row['away']:.1e}"]
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
    verb.add_argument("--ways", nargs="*", help=", ".join(WAYS))
    verb.set_defaults(verb=prepare)
    verb = verbs.add_parser("run")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--steps", type=int, default=20)
    verb.add_argument("--seconds", type=float, default=100)
    verb.add_argument("--markdown", type=Path)
    verb.add_argument("--json", type=Path)
    verb.set_defaults(verb=run)
    args = parser.parse_args()
    status: int = args.verb(args)
    return status


if __name__ == "__main__":
    sys.exit(main())

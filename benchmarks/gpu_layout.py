# SPDX-License-Identifier: Apache-2.0
"""Images with channels last beside images with channels first, on two machines: one compiles, one has the GPU.

    python benchmarks/gpu_layout.py prepare --models DIR --cache CACHE --out FOLDER CASE ...
    python benchmarks/gpu_layout.py run FOLDER [--seconds N] [--torch] [--json FILE] [--tables DIR]

A CASE is MODEL:BATCH:PRECISION, or MODEL:BATCH:PRECISION:train for a training step, whose gradients then take either layout, too; the
model as for `gpu_speed.py`. Each is compiled with the pass `channels-last`, without it, and in
f32. `run` takes the cases in the order given, each in a process of its own: milliseconds of a run (median of 25, as one CUDA graph),
errors against the f32 artifact (norm of the difference over the norm), and the time of each op, longest first, with the operations
and bytes a second that it reaches. `--torch` also measures torch.compile with channels last. Weights are drawn from a seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_artifacts import draw_feeds, fill, strip, vocabularies
from gpu_compare import card, relative_error, start_device
from gpu_rows import measured_apart
from gpu_speed import measure_torch, median_ms
from linked_package import link_package

Array = npt.NDArray[Any]

WAYS: dict[str, dict[str, Any]] = {
    "last": {},
    "first": {"disabled_passes": ["channels-last"]},
    "f32": {"precision": "f32"},
}
"""The compiler's options of each."""

RUNS = 25
PROFILED = 8
LISTED = 40


def prepare(args: argparse.Namespace) -> int:
    import models as all_models

    import memc

    for number, case in enumerate(args.cases):
        stem, batch, precision, *mode = case.split(":")
        known = (*all_models.MODELS, *all_models.WRITTEN)
        (model,) = [m for m in known if m.name in (f"training/{stem}", f"written/{stem}")]
        folder = args.out / f"{number:02}.{case.replace(':', '.')}"
        for way, options in WAYS.items():
            start = time.perf_counter()
            shapes = {"input_shapes": model.shapes(int(batch)), "bind": model.bind}
            artifact = folder / f"{way}.memc"
            done = memc.compile(
                str(model.path(args.models, args.cache)),
                artifact,
                target="cuda",
                arch=args.arch,
                **shapes,
                **(step_options(way, precision) if mode else {"precision": precision, **options}),
            )
            (folder / f"{way}.json").write_text(json.dumps(described(artifact)))
            size, spent = strip(artifact), time.perf_counter() - start
            print(
                f"{case} {way}: arena {done.report.arena_bytes} bytes, {size / 2**20:.2f} MiB, {spent:.0f} s",
                flush=True,
            )
        facts = {
            "optimizer": "sgd",
            "case": case,
            "stem": stem,
            "batch": int(batch),
            "precision": precision,
            "train": bool(mode),
        }
        (folder / "case.json").write_text(json.dumps({**facts, "below": vocabularies(model)}))
    return 0


def step_options(way: str, precision: str) -> dict[str, Any]:
    """Of a training step, which the compiler leaves in the layout that the model has."""
    import memc
    from memc.passes.pipelines import pipeline

    text = pipeline(2, "cuda", precision="f32" if way == "f32" else precision)
    if way == "last":
        text = text.replace("channels-last{", "channels-last{training ").replace(
            "channels-last,", "channels-last{training},"
        )
    return {"train": memc.BuildGradient(), "pass_pipeline": text}


def described(artifact: Path) -> list[tuple[str, str, int, int]]:
    """Each op of an artifact: its kind, what it reads and makes, its operations, and the bytes that it moves."""
    from memc.ir.cost_model import moved_bytes
    from memc.ir.op_queries import flops
    from memc.ir.ops.shared.op_def import inner_ops, main_op
    from memc.ir.text.parser import parse
    from memc.runtime.artifact import manifest

    rows = []
    for op in parse((artifact / manifest.TEXT).read_text()).main.ops:
        kind = "+".join(inner.name for inner in inner_ops(op))
        window = {k: v for k, v in main_op(op).attrs.items() if k in ("kernel", "strides", "pads")}
        types = ", ".join(str(v.type) for v in op.operands[:2]) + " -> " + ", ".join(str(v.type) for v in op.results)
        rows.append((kind, f"{types} {window or ''}", flops(op), moved_bytes(op)))
    return rows


def run(args: argparse.Namespace) -> int:
    end = time.monotonic() + args.seconds
    rows = []
    for folder in sorted(p for p in args.folder.iterdir() if (p / "case.json").is_file()):
        left = end - time.monotonic()
        if left < 15 or not any(part in folder.name for part in args.only or [""]):
            continue
        command = [sys.executable, __file__, "one", str(folder)]
        command += ["--torch"] if args.torch else []
        command += ["--tables", str(args.tables)] if args.tables else []
        rows.append({"folder": folder.name} | measured_apart(command, left)[0])
        print(json.dumps(rows[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps({"card": card(), "rows": rows}, indent=1) + "\n")
    return 0


def one(args: argparse.Namespace) -> int:
    """Print one case's row as JSON, and write its ops' times."""
    link_package()
    facts = json.loads((args.folder / "case.json").read_text())
    row: dict[str, Any] = {"case": facts["case"]}
    start_device()
    outputs: dict[str, Array] = {}
    for way in WAYS:
        start = time.perf_counter()
        try:
            row[way], outputs[way], lines = measure(args.folder, way, facts)
        except Exception as error:  # The other ways still tell something.
            row[way] = {"error": f"{type(error).__name__}: {error}"[:600]}
            continue
        row[way]["seconds"] = round(time.perf_counter() - start, 1)
        if args.tables and lines:
            args.tables.mkdir(parents=True, exist_ok=True)
            (args.tables / f"{args.folder.name}.{way}.txt").write_text("\n".join(lines) + "\n")
    for way in ("last", "first"):
        if way in outputs and "f32" in outputs:
            row[way]["error of outputs"] = float(relative_error(outputs[way], outputs["f32"]))
    if "last" in outputs and "first" in outputs:
        row["last / first"] = round(row["last"]["ms"] / row["first"]["ms"], 3)
    if args.torch:
        row["torch"] = measure_torch(facts, "reduce-overhead", None, True)
    print(json.dumps(row))
    return 0


def measure(folder: Path, way: str, facts: dict[str, Any]) -> tuple[dict[str, Any], Array, list[str]]:
    """Milliseconds of an artifact, what it computes, and the table of its ops."""
    import tvm
    import tvm_ffi

    from memc.runtime.execute.executable import Executable
    from memc.runtime.execute.load import load
    from memc.runtime.execute.profile import profile

    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "model.memc"
        fill(folder / f"{way}.memc", whole)
        exe = load(whole, cuda_graph=True)
    feeds = draw_feeds(exe.inputs, facts["below"])
    placed = exe.placed_inputs(feeds)
    first = Executable.run_numpy(exe, feeds)
    result = np.concatenate([np.asarray(v, np.float32).reshape(-1) for v in first.values()])
    if way == "f32":  # Its values are what matters.
        return {}, result, []
    ms = median_ms(lambda: Executable.__call__(exe, **placed), tvm.cuda(0).sync, RUNS)
    samples = profile(exe, placed, PROFILED)
    seconds: Counter[int] = Counter()
    for calls in zip(*samples):
        seconds[calls[0].op] += float(np.median([call.seconds for call in calls]))
    ops = json.loads((folder / f"{way}.json").read_text())
    row = {"ms": round(ms, 3), "kernels ms": round(sum(seconds.values()) * 1e3, 3), "held": exe.manifest.footprint.peak}
    chosen = str(tvm_ffi.get_global_func("memc.cuda.choices")(0))
    return row, result, [*table(ops, seconds), "", chosen]


def table(ops: list[tuple[str, str, int, int]], seconds: Counter[int]) -> list[str]:
    """Kinds of ops by their time, then single ops."""
    kinds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for index, spent in seconds.items():
        kinds[ops[index][0]] += spent
        counts[ops[index][0]] += 1
    lines = [f"{spent * 1e6:9.1f} us {counts[kind]:4d} {kind}" for kind, spent in kinds.most_common()]
    lines.append("")
    for index, spent in seconds.most_common(LISTED):
        kind, types, operations, nbytes = ops[index]
        speed = f"{operations / spent / 1e12:6.1f} TFLOP/s {nbytes / spent / 1e9:7.0f} GB/s"
        lines.append(f"{spent * 1e6:9.1f} us {speed} {kind} {types}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare", help="compile here, without a GPU")
    first.add_argument("cases", nargs="+")
    first.add_argument("--models", type=Path, required=True)
    first.add_argument("--cache", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--arch", default="sm_90")
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="measure on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--only", nargs="*", help="parts of cases' names")
    second.add_argument("--seconds", type=float, default=3600, help="stop beginning cases after that many")
    second.add_argument("--json", type=Path)
    third = verbs.add_parser("one", help="measure one case; what `run` calls")
    third.add_argument("folder", type=Path)
    for verb in (second, third):
        verb.add_argument("--torch", action="store_true", help="also torch.compile with channels last")
        verb.add_argument("--tables", type=Path, help="folder for the times of ops")
    second.set_defaults(verb=run)
    third.set_defaults(verb=one)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())

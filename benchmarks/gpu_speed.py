# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of CUDA artifacts beside PyTorch, on two machines: one compiles, one has the GPU and PyTorch.

    python benchmarks/gpu_speed.py prepare --models DIR --cache CACHE --out FOLDER CASE ...
    python benchmarks/gpu_speed.py run FOLDER [--compile] [--channels-last] [--profile DIR] [--json FILE] [--markdown FILE]

A CASE is MODEL:BATCH for inference, or MODEL:BATCH:train for a training step with SGD (or another `--optimizer`), MODEL the
last part of the name of a model in DIR/training, or of `conv_nets.py`; `--kernels library,generated` compiles it both ways (others: `WAYS`). Artifacts travel without their large weights,
which `run` draws from a seed; the two ways' outputs are compared, and with `--profile` the kernels' times are listed.

Everything is f32 without TF32 (with it, on both sides, with `--precision tf32`); with `--precision f16` or `bf16`, PyTorch runs
under torch.autocast, and training in f16 with its GradScaler; `--reference` then also compiles in f32, to which outputs are
compared. PyTorch's settings but for that are its own. A time is the median of 50 runs, each until the
device is idle, with inputs on the device. memc's memory is arena, weights, inputs and outputs; PyTorch's is the peak that it
reserved. Each case runs in a process of its own, one contestant after another.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_artifacts import draw_feeds, fill, strip, vocabularies
from gpu_compare import card, relative_error, start_device, used_memory
from gpu_rows import measured_apart, write_down
from linked_package import link_package

Array = npt.NDArray[Any]

WAYS: dict[str, dict[str, Any]] = {
    "library": {},
    "generated": {"kernels": "generated"},
    "none": {"workspace": "none"},
    "roomy": {"workspace": 1 << 30},
    "f32": {"precision": "f32"},
}
"""The compiler's options of each way; `none` and `roomy`: without workspaces, and with as large ones as are of use."""


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "sgd", "momentum": 0.9},
    "adam": {"optimizer": "adam"},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.01},
}
"""Options of the training step. PyTorch's are the same, and else its defaults."""


def prepare(args: argparse.Namespace) -> int:
    import models as all_models

    import memc
    from memc.runtime.artifact.read import read_manifest

    for case in args.cases:
        stem, batch, *mode = case.split(":")
        known = (*all_models.MODELS, *all_models.WRITTEN)
        (model,) = [m for m in known if m.name in (f"training/{stem}", f"written/{stem}")]
        path = model.path(args.models, args.cache)
        facts = {"case": case, "stem": stem, "batch": int(batch), "train": bool(mode), "below": vocabularies(model)}
        facts |= {"precision": args.precision, "optimizer": args.optimizer}
        name = file_name(facts)
        for way in [*args.kernels.split(","), *(["f32"] if args.reference else [])]:
            start = time.perf_counter()
            folder = args.out / name / f"{way}.memc"
            options: dict[str, Any] = {
                "input_shapes": model.shapes(int(batch)),
                "precision": args.precision,
                **WAYS[way],
            }
            if mode:
                options["train"] = memc.BuildGradient(**OPTIMIZERS[args.optimizer])
            done = memc.compile(str(path), folder, target="cuda", arch=args.arch, bind=model.bind, **options)
            size = strip(folder)
            spent = time.perf_counter() - start
            calls = len(read_manifest(folder).calls)
            print(
                f"{case} {way}: {calls} calls of {done.report.kernels} kernels, {size / 2**20:.2f} MiB, {spent:.0f} s",
                flush=True,
            )
        (args.out / name / "case.json").write_text(json.dumps(facts))
    return 0


def file_name(facts: dict[str, Any]) -> str:
    """Of what belongs to a case."""
    kind = f".{facts['optimizer']}" if facts["train"] and facts["optimizer"] != "sgd" else ""
    return (
        str(facts["case"]).replace(":", ".") + kind + ("" if facts["precision"] == "f32" else f".{facts['precision']}")
    )


def run(args: argparse.Namespace) -> int:
    rows = []
    end = time.monotonic() + args.seconds
    for folder in sorted(p for p in args.folder.iterdir() if (p / "case.json").is_file()):
        left = end - time.monotonic()
        if left < 20 or not any(p in folder.name for p in args.only or [""]):
            continue
        command = [sys.executable, __file__, "one", str(folder), *(["--compile"] if args.compile else [])]
        command += ["--channels-last"] if args.channels_last else []
        command += ["--profile", str(args.profile)] if args.profile else []
        rows.append({"case": folder.name} | measured_apart(command, left)[0])
        write_down(rows, table, args)
    print(table(rows))
    return 0


def one(args: argparse.Namespace) -> int:
    """Print one case's row as JSON."""
    link_package()
    facts = json.loads((args.folder / "case.json").read_text())
    row: dict[str, Any] = {"case": facts["case"] + ("" if facts["precision"] == "f32" else f", {facts['precision']}")}
    if facts["train"] and facts["optimizer"] != "sgd":
        row["case"] += f", {facts['optimizer']}"
    start_device()
    outputs: dict[str, Array] = {}
    for way in sorted(p.stem for p in args.folder.glob("*.memc")):
        for graph in (True,) if way == "f32" else (True, False):
            measured, result = measure_memc(args.folder / f"{way}.memc", facts, graph, way, args.profile)
            row[way if graph else f"{way}, no graph"] = measured
            outputs.setdefault(way, result)
            row["difference"] = max(row.get("difference", 0.0), relative_error(result, next(iter(outputs.values()))))
    row["eager"] = measure_torch(facts, None, args.profile)
    if args.compile:
        row["compiled"] = measure_torch(facts, "reduce-overhead", None)
    if args.channels_last:
        row["compiled, channels last"] = measure_torch(facts, "reduce-overhead", None, True)
    print(json.dumps(row))
    return 0


def measure_memc(
    artifact: Path, facts: dict[str, Any], graph: bool, way: str, profile: Path | None
) -> tuple[dict[str, Any], Array]:
    """Milliseconds and bytes of an artifact, and what it computed first."""
    import tvm

    from memc.runtime.execute.executable import Executable
    from memc.runtime.execute.load import load

    before = used_memory()
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "model.memc"
        fill(artifact, whole)
        exe = load(whole, cuda_graph=graph)
    feeds = draw_feeds(exe.inputs, facts["below"])
    placed = exe.placed_inputs(feeds)
    first = Executable.run_numpy(exe, feeds)
    result = np.concatenate([np.asarray(v, np.float32).reshape(-1) for v in first.values()])

    def call() -> object:
        return Executable.__call__(exe, **placed)

    sync = tvm.cuda(0).sync
    start = time.perf_counter()
    call()
    sync()
    warm = time.perf_counter() - start
    measured = {
        "ms": median_ms(call, sync),
        "held": exe.manifest.footprint.peak,
        "device": used_memory() - before,
        "second call s": round(warm, 3),
    }
    if profile and not graph:
        write_profile(call, sync, profile / f"{file_name(facts)}.{way}.txt")
    return measured, result


def measure_torch(
    facts: dict[str, Any], mode: str | None, profile: Path | None, channels_last: bool = False
) -> dict[str, Any]:
    """The same of PyTorch, as it is or compiled in a mode, with images and weights as they are or with the channels last."""
    import conv_nets
    import torch
    import torch_models

    half = {"f16": torch.float16, "bf16": torch.bfloat16}.get(facts["precision"])
    torch.backends.cuda.matmul.allow_tf32 = facts["precision"] == "tf32"
    torch.backends.cudnn.allow_tf32 = facts["precision"] == "tf32"
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = torch_models.build(facts["stem"]).cuda().train(facts["train"])
    size = {"inception_v3": 299, "unet": 256}.get(facts["stem"], 224)
    shape = {"bert_base": (128,), "lstm": (50, 1024), **conv_nets.SIZES}.get(facts["stem"], (3, size, size))
    if facts["stem"] == "bert_base":
        x = torch.randint(0, 30522, (facts["batch"], *shape), device="cuda")
    else:
        x = torch.randn(facts["batch"], *shape, device="cuda")
    if channels_last:
        layout = torch.channels_last_3d if x.ndim == 5 else torch.channels_last
        model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    chosen = torch.compile(model, mode=mode) if mode else model
    if facts["train"]:
        labels = torch.randint(0, 4, (facts["batch"],), device="cuda")
        settings = dict(OPTIMIZERS[facts["optimizer"]])
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        optimizer = kind[settings.pop("optimizer")](model.parameters(), 1e-3, **settings)
        scaler = torch.amp.GradScaler("cuda", enabled=facts["precision"] == "f16")

        def call() -> None:
            with torch.autocast("cuda", dtype=half, enabled=half is not None):
                loss = torch.nn.functional.cross_entropy(chosen(x), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)

    else:

        def call() -> None:
            with torch.no_grad(), torch.autocast("cuda", dtype=half, enabled=half is not None):
                chosen(x)

    measured = {"ms": median_ms(call, torch.cuda.synchronize)}
    measured["reserved"] = torch.cuda.max_memory_reserved()
    if profile:
        write_profile(call, torch.cuda.synchronize, profile / f"{file_name(facts)}.eager.txt")
    return measured


def median_ms(call: Callable[[], Any], sync: Callable[[], None], runs: int = 50, warm: int = 10) -> float:
    times = []
    for number in range(warm + runs):
        sync()
        start = time.perf_counter()
        call()
        sync()
        if number >= warm:
            times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e3)


def write_profile(call: Callable[[], Any], sync: Callable[[], None], path: Path) -> None:
    """The device time of each kernel over three runs."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    path.parent.mkdir(parents=True, exist_ok=True)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            call()
        sync()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda r: -r.self_device_time_total)
    total = sum(r.self_device_time_total for r in rows)
    lines = [f"{total / 3:.1f} us in {sum(r.count for r in rows) // 3} kernels"]
    lines += [f"{r.self_device_time_total / 3:9.1f} us {r.count // 3:5d} {r.key[:110]}" for r in rows[:40]]
    path.write_text("\n".join(lines) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    """Times in ms, ratios to PyTorch eager, memory in MiB."""
    contestants = [
        k
        for k in (
            *(f"{way}{how}" for way in WAYS for how in ("", ", no graph")),
            "eager",
            "compiled",
            "compiled, channels last",
        )
        if any(k in row for row in rows)
    ]
    head = ["case", *contestants, "library / eager", "memc MiB", "eager MiB", "memory ratio", "difference"]
    lines = [f"Card: {card()}", "", "| " + " | ".join(head) + " |", "| --- " + "| --: " * (len(head) - 1) + "|"]
    for row in rows:
        if "note" in row:
            lines.append(f"| {row['case']} | {row['note'].splitlines()[-1][:200]} |")
            continue
        cells = [row["case"], *(f"{row[k]['ms']:.3f}" if k in row else "" for k in contestants)]
        mine, theirs = row.get("library", row.get("generated")), row["eager"]
        held = mine["held"]
        cells += [f"{mine['ms'] / theirs['ms']:.2f}", f"{held / 2**20:.1f}", f"{theirs['reserved'] / 2**20:.1f}"]
        cells += [f"{held / theirs['reserved']:.2f}", f"{row['difference']:.1e}"]
        lines.append("| " + " | ".join(cells) + " |")
    done = [r for r in rows if "library" in r]
    if done:
        speed = np.exp(np.mean([np.log(r["library"]["ms"] / r["eager"]["ms"]) for r in done]))
        lines += ["", f"Geometric mean of library / eager: {speed:.2f} over {len(done)} cases."]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare", help="compile here, without a GPU")
    first.add_argument("cases", nargs="+")
    first.add_argument("--models", type=Path, required=True)
    first.add_argument("--cache", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--arch", default="sm_90")
    first.add_argument("--kernels", default="library")
    first.add_argument("--optimizer", default="sgd", choices=OPTIMIZERS, help="of training steps")
    first.add_argument("--precision", default="f32", help="f32; or tf32, f16 or bf16 on both sides")
    first.add_argument("--reference", action="store_true", help="also f32, to compare with")
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="measure on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--only", nargs="*", help="parts of cases' names")
    second.add_argument("--seconds", type=float, default=3600, help="stop beginning cases after that many")
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    third = verbs.add_parser("one", help="measure one case; what `run` calls")
    third.add_argument("folder", type=Path)
    for verb in (second, third):
        verb.add_argument("--compile", action="store_true", help="also torch.compile with mode reduce-overhead")
        verb.add_argument("--channels-last", action="store_true", help="the same with the channels last")
        verb.add_argument("--profile", type=Path, help="folder for lists of kernels and their times")
    second.set_defaults(verb=run)
    third.set_defaults(verb=one)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Compares CUDA artifacts with onnxruntime, on two machines: one compiles, one has the GPU.

    python benchmarks/gpu_compare.py prepare --models DIR --cache CACHE --out FOLDER [--arch sm_90] [--kernels KIND] [PATTERN ...]
    python benchmarks/gpu_compare.py run FOLDER [--jobs N] [--json FILE] [--markdown FILE]

`prepare` cross-compiles each model (no GPU needed) and stores code, plan and the model's file, but no weights, which may be
too much to carry. `run` imports and plans each model again, checks that this gives the very same planned IR, and takes
the weights from there; it needs TVM's runtime but not its compiler, besides numpy, onnx, onnxruntime and lark. Where
memc is not installed, MEMC_CORE names its libmemc_core.so.

The error of an output is norm(memc - onnxruntime) / norm(onnxruntime); a model's is that of its worst output. Each model
runs in a process of its own. Its device memory is what the card reports as used after the runs, less what it reported
once the process had a CUDA context; the card counts in steps of 2 MiB. What it has beyond arena and weights are the code
of its kernels, inputs, outputs and those steps. With several `--jobs`, times and memory are not measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

from linked_package import link_package

Array = npt.NDArray[Any]

TOLERANCE = 1e-4
ROOT = Path(__file__).resolve().parents[1]


def prepare(args: argparse.Namespace) -> int:
    import models as all_models

    args.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for model in all_models.select(args.patterns):
        name = model.name.replace("/", "_")
        start = time.perf_counter()
        try:
            note = prepare_model(model, args, args.out / name)
        except Exception as error:  # One model's failure must not lose the others.
            shutil.rmtree(args.out / name, ignore_errors=True)
            failed += 1
            note = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"{model.name}: {note} ({time.perf_counter() - start:.1f} s)", flush=True)
    return int(failed > 0)


def prepare_model(model: Any, args: argparse.Namespace, folder: Path) -> str:
    from memc.runtime.artifact import manifest

    path = model.path(args.models, args.cache)
    compiled = plan(model, path, args.batch, args.arch, args.kernels, folder / "model.memc")
    (folder / "model.memc" / manifest.WEIGHTS).unlink()
    sources = args.out / "sources"
    if model.family in ("training", "inference"):
        path = args.models / f"{model.name}.onnx"
    if model.family != "light":
        (sources / model.family).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, sources / model.family)
    (folder / "names.json").write_text(
        json.dumps({"model": model.name, "batch": args.batch, "arch": args.arch, "kernels": args.kernels})
    )
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    return f"{compiled.report.kernels} kernels, {size / 2**20:.2f} MiB"


def plan(model: Any, path: Path, batch: int, arch: str, kernels: Any, output: Path | None) -> Any:
    """The compilation of a model, or without `output` only its plan."""
    from memc import driver

    return driver.compile(
        str(path),
        output,
        target="cuda",
        arch=arch,
        kernels=kernels,
        input_shapes=model.shapes(batch),
        bind=model.bind,
        plan_only=output is None,
    )


def run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(args.jobs) as pool:
        # Models of wheels are looked for in the cache, the exports in a folder of their own.
        shutil.copytree(args.folder / "sources", cache, dirs_exist_ok=True)
        folders = sorted(p for p in args.folder.iterdir() if (p / "names.json").is_file())
        rows = list(pool.map(lambda folder: row_of(folder, Path(cache), args.jobs == 1), folders))
    text = table(rows)
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"card": card(), "rows": rows}, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(text + "\n")
    return int(any(row["error"] is None or not row["error"] < TOLERANCE for row in rows))


def row_of(folder: Path, cache: Path, alone: bool) -> dict[str, Any]:
    """One model's row, from a process of its own; without times and memory unless it is `alone` on the device."""
    command = [sys.executable, __file__, "one", str(folder), "--cache", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):  # A row that says so is worth more than a table that is not there.
        note = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        row = {"model": folder.name, "batch": 0, "error": None, "note": note[:300]}
    if not alone and row["error"] is not None:
        row["ms"] = row["device_bytes"] = None
    print(json.dumps(row), flush=True)
    return row


def one(args: argparse.Namespace) -> int:
    """Print one model's row as JSON."""
    link_package()
    print(json.dumps(run_model(args.folder, args.folder.parent / "sources", args.cache)))
    return 0


def run_model(folder: Path, sources: Path, cache: Path) -> dict[str, Any]:
    import models as all_models
    import verify_models

    from memc.runtime.artifact import manifest, safetensors
    from memc.runtime.artifact import write as artifacts
    from memc.runtime.artifact.weight_slab import slab_entries
    from memc.runtime.code_target import CodeTarget
    from memc.runtime.execute.load import load

    names = json.loads((folder / "names.json").read_text())
    (model,) = [m for m in all_models.MODELS if m.name == names["model"]]
    batch = names["batch"]
    path = model.path(sources, cache)
    module = plan(model, path, batch, names["arch"], names["kernels"], None).module
    if str(module) != (folder / "model.memc" / manifest.TEXT).read_text():
        raise AssertionError("planning again gives another plan")
    start_device()
    before = used_memory()
    with tempfile.TemporaryDirectory() as temporary:
        artifact = Path(temporary) / "model.memc"
        shutil.copytree(folder / "model.memc", artifact)
        alignment = CodeTarget.create("cuda").alignment
        entries = [artifacts.stored_entry(module, entry) for entry in slab_entries(module.main, alignment)]
        safetensors.write(artifact / manifest.WEIGHTS, entries)
        exe = load(artifact)
    feeds = model.feeds(batch)
    [expected] = verify_models.reference(path, {**feeds, **model.constants()})
    first = exe.run_numpy(feeds)
    again = exe.run_numpy(feeds)
    for key in expected:
        if first[key].tobytes() != again[key].tobytes():
            raise AssertionError(f"output {key} differs between two runs")
    errors = [relative_error(first[key], expected[key]) for key in expected]
    ms = milliseconds(exe, feeds)
    return {
        "model": names["model"],
        "batch": batch,
        "error": max(errors),
        "ms": ms,
        "arena_bytes": exe.manifest.footprint["arena"],
        "weights_bytes": exe.manifest.footprint["weights"],
        "device_bytes": used_memory() - before,
        "note": "",
    }


def start_device() -> None:
    """Make the CUDA context, so that its memory is not taken for a model's."""
    import ctypes

    import tvm

    ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"), mode=ctypes.RTLD_GLOBAL)
    tvm.runtime.empty((1,), "float32", tvm.cuda(0))
    tvm.cuda(0).sync()


def used_memory() -> int:
    """Bytes in use on the card, by anyone."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) * 2**20
    except (OSError, subprocess.CalledProcessError):
        return 0


def milliseconds(exe: Any, feeds: dict[str, Array], runs: int = 10) -> float:
    """Median time of a run with its inputs on the device, until the device is idle."""
    placed = exe.placed_inputs(feeds)
    times = []
    for _ in range(runs):
        exe.device.sync()
        start = time.perf_counter()
        exe(**placed)
        exe.device.sync()
        times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e3)


def relative_error(got: Array, want: Array) -> float:
    if got.shape != want.shape:
        raise AssertionError(f"shape {got.shape}, expected {want.shape}")
    if want.dtype.kind not in "fV":
        return float(np.any(got != want))
    a, b = got.astype(np.float64), want.astype(np.float64)
    norm = float(np.linalg.norm(b))
    error = float(np.linalg.norm(a - b))
    return error / norm if norm else error


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"Card: {card()}",
        "",
        "| model | batch | error | ms | arena MiB | weights MiB | device MiB | beyond the plan MiB | result |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for row in rows:
        if row["error"] is None:
            lines.append(f"| {row['model']} | {row['batch']} | | | | | | | {row['note']} |")
            continue
        verdict = "match" if row["error"] < TOLERANCE else "DIFFERS"
        sizes = [row[key] for key in ("arena_bytes", "weights_bytes", "device_bytes")]
        sizes.append(None if sizes[2] is None else sizes[2] - sizes[0] - sizes[1])
        cells = [
            row["model"],
            str(row["batch"]),
            f"{row['error']:.1e}",
            "" if row["ms"] is None else f"{row['ms']:.2f}",
        ]
        cells += ["" if size is None else f"{size / 2**20:.1f}" for size in sizes]
        lines.append("| " + " | ".join([*cells, verdict]) + " |")
    return "\n".join(lines)


def card() -> str:
    """The GPU, its driver, and TVM's version."""
    import tvm

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        shown = "no GPU"
    return f"{shown}, tvm {tvm.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    first = verbs.add_parser("prepare", help="compile here, without a GPU")
    first.add_argument("patterns", nargs="*", help="parts of model names; all models for none")
    first.add_argument("--models", type=Path, required=True)
    first.add_argument("--cache", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--arch", default="sm_90")
    first.add_argument("--batch", type=int, default=1)
    first.add_argument("--kernels", default="auto", help="auto, library or generated")
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="compare on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--jobs", type=int, default=1, help="models at a time")
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    second.set_defaults(verb=run)
    third = verbs.add_parser("one", help="compare one model; what `run` calls")
    third.add_argument("folder", type=Path)
    third.add_argument("--cache", type=Path, required=True)
    third.set_defaults(verb=one)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Compares CUDA artifacts with onnxruntime, on two machines: one compiles and has the references, one has the GPU.

    python benchmarks/gpu_compare.py prepare --models DIR --cache CACHE --out FOLDER [--arch sm_90] [PATTERN ...]
    python benchmarks/gpu_compare.py run FOLDER [--json FILE] [--markdown FILE]

`prepare` cross-compiles each model (no GPU needed), runs onnxruntime on the CPU, and stores artifacts with their weights
as recipes (gpu_weights.py), inputs and expected outputs. `run` needs numpy, TVM's runtime and memc's own files only.

The error of an output is norm(memc - onnxruntime) / norm(onnxruntime); a model's is that of its worst output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu_weights

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
    import onnx
    import verify_models

    from memc import driver
    from memc.runtime import manifest, safetensors

    path = model.path(args.models, args.cache)
    feeds = model.feeds(args.batch)
    compiled = driver.compile(
        str(path),
        folder / "model.memc",
        target="cuda",
        arch=args.arch,
        input_shapes=model.shapes(args.batch),
        bind=model.bind,
    )
    weights_file = folder / "model.memc" / manifest.WEIGHTS
    specs = {slot.spec.name: slot.spec for slot in manifest.read(folder / "model.memc").weights}
    stored = safetensors.read(weights_file)
    weights = {
        name: np.asarray(data).view(np.float32).reshape(specs[name].shape) if specs[name].dtype == "f32" else data
        for name, data in stored.items()
    }
    initializers = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}
    plain = gpu_weights.pack(weights, initializers, folder)
    weights_file.unlink()
    expected = verify_models.reference(path, {**feeds, **model.constants()})
    np.savez_compressed(folder / "feeds.npz", **{f"i{n}": feeds[key] for n, key in enumerate(feeds)})
    np.savez_compressed(folder / "expected.npz", **{f"o{n}": expected[key] for n, key in enumerate(expected)})
    names = {"model": model.name, "batch": args.batch, "inputs": list(feeds), "outputs": list(expected)}
    (folder / "names.json").write_text(json.dumps(names))
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    report = compiled.report
    return f"{report.kernels} kernels, {size / 2**20:.2f} MiB, {plain} of {len(weights)} weights as plain data"


def run(args: argparse.Namespace) -> int:
    link_package()
    rows = []
    for folder in sorted(p for p in args.folder.iterdir() if (p / "names.json").is_file()):
        try:
            rows.append(run_model(folder))
        except Exception as error:  # A row that says so is worth more than a table that is not there.
            lines = f"{type(error).__name__}: {error}".splitlines()
            rows.append({"model": folder.name, "error": None, "note": lines[0], "ms": None, "device": ""})
        print(json.dumps(rows[-1]), flush=True)
    text = table(rows)
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"card": card(), "rows": rows}, indent=1) + "\n")
    if args.markdown:
        args.markdown.write_text(text + "\n")
    return int(any(row["error"] is None or not row["error"] < TOLERANCE for row in rows))


def run_model(folder: Path) -> dict[str, Any]:
    from memc.runtime import executable, manifest, safetensors

    names = json.loads((folder / "names.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        artifact = Path(temporary) / "model.memc"
        shutil.copytree(folder / "model.memc", artifact)
        weights = gpu_weights.unpack(folder)
        entries = [(n, "u8", (d.size,), d.size, lambda d=d: d) for n, d in weights.items()]  # type: ignore[misc]
        safetensors.write(artifact / manifest.WEIGHTS, entries)
        exe = executable.load(artifact)
    with np.load(folder / "feeds.npz") as stored:
        feeds = {key: stored[f"i{n}"] for n, key in enumerate(names["inputs"])}
    with np.load(folder / "expected.npz") as stored:
        expected = {key: stored[f"o{n}"] for n, key in enumerate(names["outputs"])}
    first = exe.run_numpy(feeds)
    again = exe.run_numpy(feeds)
    for key in expected:
        if first[key].tobytes() != again[key].tobytes():
            raise AssertionError(f"output {key} differs between two runs")
    errors = [relative_error(first[key], expected[key]) for key in expected]
    return {
        "model": names["model"],
        "batch": names["batch"],
        "error": max(errors),
        "ms": milliseconds(exe, feeds),
        "arena_bytes": exe.manifest.arena_bytes,
        "weights_bytes": exe.manifest.weights_bytes,
        "note": "",
    }


def milliseconds(exe: Any, feeds: dict[str, Array], runs: int = 10) -> float:
    """Median time of a run with its inputs on the device, until the device is idle."""
    placed = {name: exe.moved(exe.tensor(exe.input(name), value)) for name, value in feeds.items()}
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
        "| model | batch | error | ms | arena MiB | result |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row["error"] is None:
            lines.append(f"| {row['model']} | | | | | {row['note']} |")
            continue
        verdict = "match" if row["error"] < TOLERANCE else "DIFFERS"
        arena = row["arena_bytes"] / 2**20
        lines.append(
            f"| {row['model']} | {row['batch']} | {row['error']:.1e} | {row['ms']:.2f} | {arena:.1f} | {verdict} |"
        )
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


def link_package() -> None:
    """Make `memc` importable from the repository where it is not installed: a folder of links, first on the path."""
    try:
        import memc.runtime  # noqa: F401

        return
    except ImportError:
        pass
    for name in [n for n in sys.modules if n == "memc" or n.startswith("memc.")]:
        del sys.modules[name]
    package = Path(tempfile.mkdtemp()) / "memc"
    package.mkdir()
    for item in (ROOT / "memc").iterdir():
        os.symlink(item, package / item.name)
    for name in ("ir", "passes", "runtime"):
        os.symlink(ROOT / name, package / name)
    sys.path.insert(0, str(package.parent))


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
    first.set_defaults(verb=prepare)
    second = verbs.add_parser("run", help="compare on a machine with a GPU")
    second.add_argument("folder", type=Path)
    second.add_argument("--json", type=Path)
    second.add_argument("--markdown", type=Path)
    second.set_defaults(verb=run)
    args = parser.parse_args()
    return int(args.verb(args))


if __name__ == "__main__":
    sys.exit(main())

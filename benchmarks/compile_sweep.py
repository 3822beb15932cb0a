# SPDX-License-Identifier: Apache-2.0
"""Compiles every model at every batch, precision, mode and target, and runs and compares the small ones on the CPU.

    python benchmarks/compile_sweep.py --out ROWS.jsonl [--models DIR] [--cache DIR] [--fetch] [--jobs N] [--markdown FILE]
    python benchmarks/compile_sweep.py --out ROWS.jsonl --model own/ --batch 1 7 --precision f16 --target llvm sm_90
    python benchmarks/compile_sweep.py --quick --out ROWS.jsonl
    python benchmarks/compile_sweep.py --out ROWS.jsonl --shuffle --seconds 3600 ...

A cell is one model (`sweep_sources.py`) at one batch in one precision, for inference, training, or training under a budget
that halves the arena, on the CPU (llvm) or for a GPU (sm_75 and so on; needs nvcc, no GPU). It passes if it compiles and the
plan checker accepts its plan; if half of the arena is too little and the error names a least peak above the budget; or if memc
says that something is unsupported. It fails, too, where a kernel did not compile and gave way to plainer ones. Small cells on
the CPU are run: inference beside onnxruntime (numpy where that is not installed), training beside numpy's evaluation of
the step in f32.

Each cell has a process of its own with a time limit, so a crash or a hang loses one cell. A line of JSON is added to ROWS.jsonl
as each is done; cells that are there are not measured again (`--retry`: but those that failed), so a sweep that was stopped
goes on, and `--seconds` ends after a part. `--shuffle` takes them in a fixed order in which the first ones, with those that are
done, have every pair (each model at each batch, for each target, each batch in each precision, and so on), and those after them
every three.
Tracebacks go to the folder ROWS.traces. Models of --models are exports without weights, seeded ones go below
--cache, where the trained models of scripts/fetch_models.py are looked for as well (`--fetch` gets them). `--quick` is a fixed
choice of small cells on models that the repository makes. Where memc is not installed, MEMC_CORE names its
libmemc_core.so, and PYTHONPATH has TVM. Exit code 1 if a cell failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from covering_order import covering_order
from linked_package import link_package
from sweep_cells import GOOD, Cell, measure
from sweep_processes import Workers
from sweep_sources import MODES, Folders, SweepModel, all_models

BATCHES = (1, 2, 3, 7, 16, 33)
PRECISIONS = ("f32", "bf16", "f16")
TARGETS = ("llvm", "sm_75", "sm_80", "sm_90", "sm_120")

QUICK = [
    Cell(*row)  # type: ignore[arg-type]
    for row in (
        ("own/quantized", "inference", "f32", "llvm", 2),
        ("own/stored_in_half", "inference", "f32", "llvm", 3),
        ("own/batch_norm_7", "inference", "f16", "llvm", 1),
        ("own/epilogues", "inference", "f16", "llvm", 2),
        ("own/epilogues", "inference", "bf16", "llvm", 7),
        ("own/upsampled", "inference", "bf16", "llvm", 1),
        ("own/inverted", "inference", "f32", "llvm", 7),
        ("own/lstm", "inference", "f16", "llvm", 3),
        ("own/gru", "inference", "f32", "llvm", 1),
        ("own/volume", "inference", "f16", "llvm", 2),
        ("own/batch_norm_7", "training", "bf16", "llvm", 2),
        ("own/batch_norm_8", "training", "f16", "llvm", 3),
        ("own/sound", "training", "f32", "llvm", 7),
        ("steps/mlp", "training", "f32", "llvm", 1),
        ("own/convnext", "training-half", "f32", "llvm", 16),
        ("own/attention", "training-half", "f32", "llvm", 7),
        ("own/batch_norm_8", "training-half", "f32", "llvm", 3),
        ("small/unet", "training-half", "f32", "llvm", 1),
        ("own/batch_norm_7", "inference", "f32", "sm_75", 2),
        ("own/batch_norm_8", "training", "bf16", "sm_90", 2),
        ("own/batch_norm_7", "training", "f16", "sm_80", 1),
    )
]


def cells(options: argparse.Namespace, models: dict[str, SweepModel]) -> Iterator[Cell]:
    """The chosen cells, in the order of the models."""
    for name, model in models.items():
        if options.model and not any(part in name for part in options.model):
            continue
        for mode in (m for m in options.mode if m in model.modes):
            for target in options.target:
                for precision in options.precision:
                    for batch in options.batch if model.open_batch else (1,):
                        yield Cell(name, mode, precision, target, batch)


def run_apart(workers: Workers, cell: Cell, folders: Folders, limit: float) -> dict[str, Any]:
    """What `sweep_cells.measure` returns, from a process of its own; `died` or `hang` where nothing came back in time."""
    done = workers.run(measure, (cell, folders), limit)
    if done.returned is not None:
        row: dict[str, Any] = done.returned
        return row
    last = (done.printed.strip().splitlines() or [""])[-1]
    hang = done.exit_code is None
    status, detail = (
        ("hang", f"no result within {limit:g} s") if hang else ("died", f"exit code {done.exit_code}: {last}")
    )
    seconds = round(done.seconds, 1)
    return {
        **asdict(cell),
        "status": status,
        "detail": detail[:300],
        "seconds": seconds,
        "trace": done.printed[-20000:],
    }


def cell_of(row: dict[str, Any]) -> Cell:
    return Cell(**{field.name: row[field.name] for field in fields(Cell)})


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The last row of each cell by its key; a line that was cut short is passed over."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            rows[cell_of(row).key] = row
        except (ValueError, KeyError):
            continue
    return rows


def sweep(
    todo: list[Cell], folders: Folders, out: Path, jobs: int, limit: float, seconds: float = float("inf")
) -> list[dict[str, Any]]:
    """Measure the cells, adding a line to `out` for each, beginning none after `seconds`, which also end those that run then;
    returns the rows, in order of completion."""
    traces, lock, rows = out.with_suffix(".traces"), threading.Lock(), []
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and out.stat().st_size and not out.read_bytes().endswith(b"\n"):
        with open(out, "a") as file:
            file.write("\n")

    workers = Workers(jobs)
    end = time.perf_counter() + seconds

    def one(cell: Cell) -> None:
        left = end - time.perf_counter()
        if left <= 0:
            return
        row = run_apart(workers, cell, folders, min(limit, left))
        if row["status"] == "hang" and left < limit:
            return
        trace = row.pop("trace", None)
        with lock, open(out, "a") as file:
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            if trace is not None:
                traces.mkdir(exist_ok=True)
                (traces / f"{cell.key.replace('/', '.').replace(' ', '.')}.txt").write_text(trace)
            word = row["status"] if row["status"] in GOOD else row["status"].upper()
            shown = f"error {row['error']:.1e}" if "error" in row else row["detail"][:160]
            print(f"[{len(rows)}/{len(todo)}] {word:11} {cell.key} {row['seconds']:.0f} s {shown}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, todo))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line a model, mode and precision, a column a target: how many batches came to what, failures by batch."""
    targets = [t for t in TARGETS if any(r["target"] == t for r in rows)]
    lines = [f"| model | mode | precision | {' | '.join(targets)} |", "| --- " * (3 + len(targets)) + "|"]
    grouped: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        grouped.setdefault((row["model"], row["mode"], row["precision"]), {}).setdefault(row["target"], []).append(row)
    for key, by_target in grouped.items():
        lines.append(f"| {' | '.join((*key, *(summary(by_target.get(t, [])) for t in targets)))} |")
    counts = Counter(row["status"] for row in rows)
    compared = sum("error" in row for row in rows)
    total = ", ".join(f"{n} {status}" for status, n in counts.most_common())
    return "\n".join([*lines, "", f"{len(rows)} cells, {compared} of them run and compared: {total}."])


def summary(rows: list[dict[str, Any]]) -> str:
    counts = Counter(row["status"] for row in rows)
    parts = [f"{counts[status]} {status}" for status in GOOD if counts[status]]
    for status in sorted(set(counts) - set(GOOD)):
        batches = sorted(row["batch"] for row in rows if row["status"] == status)
        parts.append(f"**{status} at {', '.join(map(str, batches))}**")
    return "; ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="ROWS.jsonl")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here as well")
    parser.add_argument("--models", type=Path, metavar="DIR", help="holds training/*.onnx and inference/*.onnx")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="trained models, and where seeded weights are written"
    )
    parser.add_argument("--fetch", action="store_true", help="get the trained models into the cache first")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="for one cell (default: 900)")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="S", help="for all of them; the rest are left to do"
    )
    parser.add_argument(
        "--shuffle", action="store_true", help="take the cells in a fixed order, pairs of everything first"
    )
    parser.add_argument("--quick", action="store_true", help="the fixed choice of small cells")
    parser.add_argument("--retry", action="store_true", help="measure cells that failed again")
    parser.add_argument("--list", action="store_true", help="print the cells that are left to do, measure none")
    parser.add_argument("--model", nargs="+", metavar="PART", help="parts of names (default: all models)")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--batch", nargs="+", type=int, default=BATCHES, metavar="N")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=TARGETS)
    options = parser.parse_args()
    link_package()
    if options.models is not None and options.cache is None:
        parser.error("--models: expected --cache, too, for their seeded weights")
    if options.fetch:
        fetch(options.cache or parser.error("--fetch: expected --cache"))
    folders = Folders(options.models, options.cache)
    chosen = QUICK if options.quick else list(cells(options, all_models(folders)))
    done = read_rows(options.out)
    todo = [c for c in chosen if c.key not in done or (options.retry and done[c.key]["status"] not in GOOD)]
    if options.shuffle:
        todo.sort(key=lambda cell: hashlib.sha256(cell.key.encode()).hexdigest())
        known = [astuple(c) for c in chosen if c.key in done and done[c.key]["status"] in GOOD]
        for width in (3, 2):  # So pairs come first, then triples.
            todo = [Cell(*case) for case in covering_order([astuple(c) for c in todo], width, known)]
    if options.list:
        print("\n".join(cell.key for cell in todo))
        return 0
    print(f"{len(todo)} of {len(chosen)} cells to do", flush=True)
    sweep(todo, folders, options.out, options.jobs, options.limit, options.seconds)
    rows = read_rows(options.out)
    measured = [rows[cell.key] for cell in chosen if cell.key in rows]
    text = table(measured)
    print(text, flush=True)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    return int(any(row["status"] not in GOOD for row in measured))


def fetch(cache: Path) -> None:
    import fetch_models  # scripts/ is on the path once models.py is.

    fetch_models.fetch(cache)


if __name__ == "__main__":
    sys.exit(main())

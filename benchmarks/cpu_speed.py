# SPDX-License-Identifier: Apache-2.0
"""Compile time, and run time beside onnxruntime, of models on this CPU.

    python benchmarks/cpu_speed.py --models DIR --cache CACHE [--threads 2] [--turns 5] [--json FILE] [NAME ...]

Both run in one process with the same number of threads, in turns of five runs, the first of which does not count. Between
turns there is a pause: the worker threads of either go on spinning for a while after a run, on the cores that the other
needs. The ratio of the medians is what counts: single times depend on the machine. Without names: ResNet-18, ResNet-50 and BERT-base, batch 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

DEFAULT = ("training/resnet18", "inference/resnet50", "inference/bert_base")


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(model: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Times in seconds; `ratio` is memc's median over onnxruntime's."""
    import onnxruntime

    import memc

    path = model.path(args.models, args.cache)
    compilation = memc.compile(path, input_shapes=model.shapes(1), bind=dict(model.bind))
    executable = compilation.load()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = model.feeds(1)
    others = {**feeds, **model.constants()}
    runs: tuple[Callable[[], Any], ...] = (lambda: executable.run_numpy(feeds), lambda: session.run(None, others))
    times: tuple[list[float], ...] = ([], [])
    for _ in range(args.turns):
        for run, taken in zip(runs, times):
            time.sleep(0.3)
            taken += [seconds(run) for _ in range(5)][1:]
    mine, other = map(statistics.median, times)
    stages = compilation.report.seconds
    return {
        "model": model.name,
        "compile_seconds": stages["total"],
        "import_and_passes_seconds": stages["import"] + stages["passes"],
        "memc_seconds": mine,
        "onnxruntime_seconds": other,
        "ratio": mine / other,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", type=Path, required=True, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, default=Path("build/models"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    from models import MODELS, select

    chosen = select(args.names) if args.names else [m for m in MODELS if m.name in DEFAULT]
    print("| model | compile s | of it import and passes s | memc ms | onnxruntime ms | ratio |")
    print("| --- | --: | --: | --: | --: | --: |")
    rows = []
    for model in chosen:
        row = measure(model, args)
        rows.append(row)
        print(
            f"| {row['model']} | {row['compile_seconds']:.1f} | {row['import_and_passes_seconds']:.1f} | "
            f"{1e3 * row['memc_seconds']:.1f} | {1e3 * row['onnxruntime_seconds']:.1f} | {row['ratio']:.2f} |",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

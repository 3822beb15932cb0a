# SPDX-License-Identifier: Apache-2.0
"""Compares memc with onnxruntime on all models of models.py: a table of norm-relative errors.

    python benchmarks/verify_models.py --models DIR --cache CACHE                     # import and numpy evaluation
    python benchmarks/verify_models.py --models DIR --cache CACHE --mode compiled     # compiled for this CPU
    python benchmarks/verify_models.py --models DIR --cache CACHE --batch 1 resnet silero

The error of an output is norm(memc - onnxruntime) / norm(onnxruntime); a model's is that of its worst output. Integer
and boolean outputs must be equal. Batch sizes other than 1 are run where the model's batch is open.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import Array, Model, select

from memc.ir.errors import MemcError

LIMIT = 1e-4
"""Largest accepted error."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    batch: int
    error: float | None
    """None where it could not be run; `note` says why."""
    import_seconds: float
    seconds: float
    """Compile and run, or evaluate."""
    ops: int
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.error is not None and self.error < LIMIT


def reference(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    """onnxruntime's outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def relative_error(got: Array, want: Array) -> float:
    """norm(got - want) / norm(want); infinite for other shapes or types, or NaN where the reference has none."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    scale = float(np.linalg.norm(b[finite]))
    gap = float(np.linalg.norm(a[finite] - b[finite]))
    return gap / scale if scale else gap


def evaluated(model: Model, path: Path, batch: int) -> tuple[dict[str, Array], float, int]:
    """Outputs, seconds of the import, ops: by numpy evaluation."""
    from memc.frontend.onnx import import_onnx
    from memc.ir.evaluate import evaluate
    from memc.ir.verifier import verify

    start = time.perf_counter()
    module = import_onnx(path, input_shapes=model.shapes(batch), bind=model.bind)
    spent = time.perf_counter() - start
    verify(module)
    return dict(evaluate(module, model.feeds(batch))), spent, len(module.main.ops)


def compiled(model: Model, path: Path, batch: int, level: int = 2) -> tuple[dict[str, Array], float, int]:
    """Outputs, seconds of the import, ops: compiled for this CPU, loaded and run."""
    import memc

    start = time.perf_counter()
    module = memc.import_onnx(path, input_shapes=model.shapes(batch), bind=model.bind)
    spent, count = time.perf_counter() - start, len(module.main.ops)
    with tempfile.TemporaryDirectory() as folder:
        artifact = memc.compile(module, Path(folder) / "model.memc", target="llvm", opt_level=level)
        results: Any = artifact.load()(**model.feeds(batch))
        return {name: np.array(results[name]) for name in module.main.result_names}, spent, count


MODES = {"evaluate": evaluated, "compiled": compiled}


def verify_model(model: Model, batch: int, mode: str, models: Path, cache: Path) -> Row:
    """One row: import, run and compare."""
    path = model.path(models, cache)
    want = reference(path, {**model.feeds(batch), **model.constants()})
    start = time.perf_counter()
    try:
        got, imported, ops = MODES[mode](model, path, batch)
    except MemcError as error:
        return Row(model.name, batch, None, 0.0, time.perf_counter() - start, 0, str(error))
    errors = {name: relative_error(got[name], array) for name, array in want.items()}
    worst = max(errors, key=lambda name: errors[name])
    note = "" if errors[worst] < LIMIT else f"output `{worst}`"
    return Row(model.name, batch, errors[worst], imported, time.perf_counter() - start - imported, ops, note)


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'model':40} {'batch':>5} {'error':>9} {'import s':>9} {'run s':>8} {'ops':>6}"]
    for row in rows:
        error = "-" if row.error is None else f"{row.error:.1e}"
        mark = "" if row.passed else "  FAILED " + row.note
        lines.append(
            f"{row.model:40} {row.batch:5} {error:>9} {row.import_seconds:9.2f} {row.seconds:8.1f} {row.ops:6}{mark}"
        )
    good = sum(r.passed for r in rows)
    lines.append(f"{good} of {len(rows)} below {LIMIT:g}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="parts of model names; all models for none")
    parser.add_argument("--models", type=Path, required=True, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, required=True, help="folder for weights and downloaded models")
    parser.add_argument("--mode", choices=sorted(MODES), default="evaluate")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--json", type=Path, help="write the rows here")
    args = parser.parse_args()
    rows = []
    for model in select(args.patterns):
        for batch in args.batch if model.open_batch else args.batch[:1]:
            row = verify_model(model, batch, args.mode, args.models, args.cache)
            rows.append(row)
            print(table([row]).splitlines()[1], file=sys.stderr, flush=True)
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return 0 if all(r.passed for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

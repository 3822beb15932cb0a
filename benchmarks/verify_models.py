# SPDX-License-Identifier: Apache-2.0
"""Compares memc with onnxruntime on all models of models.py: a table of norm-relative errors.

    python benchmarks/verify_models.py --models DIR --cache CACHE                     # import and numpy evaluation
    python benchmarks/verify_models.py --models DIR --cache CACHE --mode compiled     # compiled for this CPU
    python benchmarks/verify_models.py --models DIR --cache CACHE --batch 1 resnet silero
    python benchmarks/verify_models.py --from ROWS.json MORE.json --markdown TABLE.md  # rows kept by --json, as a page

The error of an output is norm(memc - onnxruntime) / norm(onnxruntime); a model's is that of its worst output. Integer
and boolean outputs must be equal. Batch sizes other than 1 are run where the model's batch is open.

Agreement proves something only where the output depends on the input: `response` is how far onnxruntime's outputs for
two random inputs are apart, in the same measure, for the output that changes least; where it is below 1, the error must
be below that share of the limit. Rows that add up to 1 must not be one-hot: `peak` is the largest probability. Seconds
are CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import Array, Model, select

from memc.ir.errors import MemcError

LIMIT = 1e-4
"""Largest accepted error."""

RESPONSE = 1e-3
"""Least accepted response."""

PEAK = 0.99
"""Largest accepted mean of the largest probabilities."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    batch: int
    error: float | None
    """None where it could not be run; `note` says why."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """CPU time by stage, of all threads and processes started: `import`, `compile`, `run`, `evaluate`."""
    ops: int = 0
    arena: int | None = None
    """Planned bytes; None where not compiled."""
    response: float = float("inf")
    peak: float | None = None
    """None where no output is rows of probabilities."""
    note: str = ""

    @property
    def passed(self) -> bool:
        telling = self.response >= RESPONSE and (self.peak is None or self.peak <= PEAK)
        return self.error is not None and self.error < LIMIT * min(1.0, self.response) and telling


@dataclass(frozen=True)
class Ran:
    """What one run of memc gave."""

    outputs: dict[str, Array]
    seconds: dict[str, float]
    ops: int
    arena: int | None = None


def reference(path: Path, *feeds: dict[str, Array]) -> list[dict[str, Array]]:
    """onnxruntime's outputs by name, for each of the feeds."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(names, item))) for item in feeds]


def relative_error(got: Array, want: Array) -> float:
    """norm(got - want) / norm(want); infinite for other shapes or types, or NaN or infinity where `want` has others."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    scale = float(np.linalg.norm(b[finite]))
    gap = float(np.linalg.norm(a[finite] - b[finite]))
    return gap / scale if scale else gap


def cpu_seconds() -> float:
    """CPU time of this process and of those it waited for: unlike time on the clock, the same on a busy machine."""
    return sum(os.times()[:4])


def peak(outputs: Mapping[str, Array]) -> float | None:
    """The mean over rows of the largest probability, of the output where it is largest; None without such outputs."""
    found = []
    for array in outputs.values():
        rows = array.reshape(array.shape[0], -1) if array.ndim == 4 else array
        if rows.dtype.kind == "f" and rows.ndim >= 2 and rows.shape[-1] > 1 and rows.min() >= 0:
            if np.allclose(rows.sum(-1), 1, atol=1e-3):
                found.append(float(rows.max(-1).mean()))
    return max(found, default=None)


def evaluated(model: Model, path: Path, batch: int) -> Ran:
    """Imported and evaluated with numpy."""
    from memc.frontend.onnx import import_onnx
    from memc.ir.evaluate import evaluate
    from memc.ir.verify.structure import verify

    start = cpu_seconds()
    module = import_onnx(path, input_shapes=model.shapes(batch), bind=model.bind)
    imported = cpu_seconds()
    verify(module)
    outputs = dict(evaluate(module, model.feeds(batch)))
    seconds = {"import": imported - start, "evaluate": cpu_seconds() - imported}
    return Ran(outputs, seconds, len(module.main.ops))


def compiled(model: Model, path: Path, batch: int, level: int = 2) -> Ran:
    """Compiled for this CPU, loaded and run."""
    import memc

    marks = [cpu_seconds()]
    module = memc.import_onnx(path, input_shapes=model.shapes(batch), bind=model.bind)
    count = len(module.main.ops)
    marks.append(cpu_seconds())
    with tempfile.TemporaryDirectory() as folder:
        artifact = memc.compile(module, Path(folder) / "model.memc", target="llvm", opt_level=level)
        marks.append(cpu_seconds())
        results: Any = artifact.load()(**model.feeds(batch))
        outputs = {name: np.array(results[name]) for name in module.main.result_names}
    marks.append(cpu_seconds())
    seconds = dict(zip(("import", "compile", "run"), np.diff(marks).tolist()))
    return Ran(outputs, seconds, count, artifact.report.arena_bytes)


MODES = {"evaluate": evaluated, "compiled": compiled}


def verify_model(model: Model, batch: int, mode: str, models: Path, cache: Path) -> Row:
    """One row: import, run and compare."""
    path = model.path(models, cache)
    want, other = reference(path, *({**model.feeds(batch, seed), **model.constants()} for seed in (0, 1)))
    response = min(relative_error(other[name], array) for name, array in want.items())
    probability = peak(want)
    try:
        ran = MODES[mode](model, path, batch)
    except MemcError as error:
        return Row(model.name, batch, None, response=response, peak=probability, note=str(error))
    errors = {name: relative_error(ran.outputs[name], array) for name, array in want.items()}
    worst = max(errors, key=lambda name: errors[name])
    note = "" if errors[worst] < LIMIT else f"output `{worst}`"
    return Row(model.name, batch, errors[worst], ran.seconds, ran.ops, ran.arena, response, probability, note)


def cells(row: Row) -> list[str]:
    """The row's columns as text, in the order of COLUMNS."""
    seconds = [f"{row.seconds[stage]:.2f}" if stage in row.seconds else "-" for stage in ("import", "compile")]
    ran = next((f"{row.seconds[stage]:.2f}" for stage in ("run", "evaluate") if stage in row.seconds), "-")
    return [
        row.model,
        str(row.batch),
        "-" if row.error is None else f"{row.error:.1e}",
        f"{row.response:.1e}",
        "-" if row.peak is None else f"{row.peak:.2f}",
        *seconds,
        ran,
        "-" if row.arena is None else f"{row.arena:,}",
        str(row.ops),
    ]


COLUMNS = ["model", "batch", "error", "response", "peak", "import s", "compile s", "run s", "arena bytes", "ops"]
WIDTHS = [40, 5, 9, 9, 5, 9, 9, 8, 13, 6]


def line(texts: list[str]) -> str:
    """Columns of fixed width."""
    return " ".join([f"{texts[0]:{WIDTHS[0]}}", *(f"{text:>{width}}" for text, width in zip(texts[1:], WIDTHS[1:]))])


def verdict(rows: list[Row]) -> str:
    """How many rows agree."""
    telling = f"a response of at least {RESPONSE:g}, no peak above {PEAK:g}"
    return (
        f"{sum(r.passed for r in rows)} of {len(rows)} have an error below {LIMIT:g} (and of the response), {telling}"
    )


def table(rows: list[Row]) -> str:
    """The rows as text."""
    marks = ["" if row.passed else "  FAILED " + row.note for row in rows]
    return "\n".join([line(COLUMNS), *(line(cells(row)) + mark for row, mark in zip(rows, marks)), verdict(rows)])


def markdown(rows: list[Row], commands: list[str]) -> str:
    """The rows as a page that says how and with what they were made."""
    import onnx
    import onnxruntime
    import tvm

    used = {"memc": version("memc"), "onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}
    used |= {"TVM": tvm.__version__, "numpy": np.__version__, "Python": platform.python_version()}
    lines = ["# Models compiled for the CPU, compared with onnxruntime", ""]
    lines += ["Written by `benchmarks/verify_models.py --from ... --markdown`, which explains the columns, from", ""]
    lines += [*(f"    {command}" for command in commands), ""]
    lines += [", ".join(f"{name} {version}" for name, version in used.items()) + f"; {platform.machine()}.", ""]
    lines += [f"{verdict(rows)}: {len({r.model for r in rows})} models.", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "| --- |" + " ---: |" * (len(COLUMNS) - 1)]
    lines += ["| " + " | ".join(cells(row)) + (" |" if row.passed else f" FAILED {row.note} |") for row in rows]
    return "\n".join(lines) + "\n"


def order(rows: list[Row]) -> list[Row]:
    """By batch, then as in the table of models; of rows for the same model and batch the last one counts."""
    names = [model.name for model in select([])]
    latest = {(row.batch, row.model): row for row in rows}
    return sorted(latest.values(), key=lambda row: (row.batch, names.index(row.model)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="parts of model names; all models for none")
    parser.add_argument("--models", type=Path, help="folder with training/ and inference/")
    parser.add_argument("--cache", type=Path, help="folder for weights and downloaded models")
    parser.add_argument("--mode", choices=sorted(MODES), default="evaluate")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--json", type=Path, help="write the rows here, after each one")
    parser.add_argument("--from", dest="sources", type=Path, nargs="+", help="rows of earlier runs; runs nothing")
    parser.add_argument("--markdown", type=Path, help="write a page here")
    args = parser.parse_args()
    rows: list[Row] = []
    if args.sources:
        rows = order([Row(**row) for path in args.sources for row in json.loads(path.read_text())])
    elif args.models is None or args.cache is None:
        parser.error("--models and --cache are needed to run models")
    for model in select(args.patterns) if not args.sources else []:
        for batch in args.batch if model.open_batch else {1}.intersection(args.batch):
            row = verify_model(model, batch, args.mode, args.models, args.cache)
            rows.append(row)
            print(table([row]).splitlines()[1], file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    print(table(rows))
    if args.markdown:
        command = "python benchmarks/verify_models.py --models DIR --cache CACHE --mode compiled --batch"
        args.markdown.write_text(markdown(rows, [f"{command} {batch}" for batch in sorted({r.batch for r in rows})]))
    return 0 if all(r.passed for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

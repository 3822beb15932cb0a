# SPDX-License-Identifier: Apache-2.0
"""One cell of `compile_sweep.py`: a model, compiled in one way, its plan checked, and where it is small its results."""

from __future__ import annotations

import logging
import re
import resource
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rounded_states import rounded_otherwise
from sweep_sources import Folders, SweepModel, all_models

Array = npt.NDArray[Any]

FORWARD = {"f32": 1e-4, "f16": 2e-2, "bf16": 8e-2}
"""Largest norm-relative error of an output."""
STEPS = {"f32": 1e-3, "f16": 5e-2, "bf16": 2e-1}
"""Largest error of a loss, and of what two steps add to all states, relative to that."""
AS_NUMPY = 1.5
"""How many times the error that numpy's evaluation has for rounding at other places a compiled step may have."""
ROUNDINGS = 4
"""Evaluations of a step in f32 that say how far rounding moves it: where the two largest elements of a pool's window, say, are
one unit in the last place apart, another may win, and the gradient jumps."""
RATE = 0.02
STEP_COUNT = 2
SCALE = "1024"
"""Of a loss in f16: one at which these models overflow nowhere, as a step that is skipped would say nothing."""
LARGEST = 256 << 20
"""Bytes of arena up to which a cell is run."""
GOOD = ("ok", "budget", "unsupported")


@dataclass(frozen=True)
class Cell:
    """One way to compile one model."""

    model: str
    mode: str
    precision: str
    target: str
    """llvm, or the architecture of a GPU."""
    batch: int

    @property
    def key(self) -> str:
        return f"{self.model} {self.mode} {self.precision} {self.target} b{self.batch}"


def measure(cell: Cell, folders: Folders) -> dict[str, Any]:
    """What came of the cell: `status` is ok; budget, where half of the arena cannot be kept and the least is named;
    unsupported, where memc says so; or what failed: wrong (results), plan (the checker), error (of a valid model), crash;
    fallback, where a kernel did not compile and plainer ones, whose results are right, took its place.

    `trace` has a failure's traceback; `error` is the largest error of a cell that was run.
    """
    from memc.ir.errors import BudgetError, CheckError, MemcError

    start, facts = time.perf_counter(), {}
    try:
        with warnings_of("memc") as told:
            _measure(all_models(folders)[cell.model], cell, folders, facts)
        fallbacks = [line for line in told if "not compile" in line]
        status, detail = ("fallback", fallbacks[0]) if fallbacks else ("ok", "")
    except Exception as error:
        status, detail = "crash", f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}"
        if isinstance(error, Wrong):
            status, detail = "wrong", str(error)
        elif isinstance(error, BudgetError):
            status, detail = _least(cell, str(error), facts)
        elif _says_unsupported(error, cell):
            status, detail = "unsupported", str(error)
        elif isinstance(error, MemcError):
            status, detail = "plan" if isinstance(error, CheckError) else "error", f"{type(error).__name__}: {error}"
        if status not in GOOD:
            facts["trace"] = traceback.format_exc()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    facts["cpu_seconds"] = round(sum(u.ru_utime + u.ru_stime for u in used), 1)
    facts["seconds"] = round(time.perf_counter() - start, 1)
    return {**asdict(cell), "status": status, "detail": detail[:300], **facts}


def _says_unsupported(error: Exception, cell: Cell) -> bool:
    """Also for models of wheels whose weights are constants; not for kernels that do not compile, which memc wrote."""
    from memc.ir.errors import UnsupportedError, UsageError

    if isinstance(error, UsageError):
        return "nothing to train" in str(error) and cell.model.split("/")[0] not in (
            "own",
            "small",
            "steps",
            "training",
        )
    own = any(text in str(error) for text in ("nvcc failed", "no kernel compiles"))
    return isinstance(error, UnsupportedError) and not own


@contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """What a logger warns of meanwhile."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield told
    finally:
        logging.getLogger(name).removeHandler(handler)


class Wrong(Exception):
    """Results that differ."""


def _least(cell: Cell, message: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    found = re.search(r"the least reachable peak is (\d+) bytes", message)
    if cell.mode != "training-half" or found is None or int(found[1]) <= facts["budget"]:
        return "error", f"expected the least reachable peak, above the budget, got: {message}"
    return "budget", message


def _measure(model: SweepModel, cell: Cell, folders: Folders, facts: dict[str, Any]) -> None:
    import memc
    from memc.ir.verify.memory_plan import check_plan

    options: dict[str, Any] = {
        "input_shapes": model.shapes(cell.batch),
        "bind": model.bind,
        "precision": cell.precision,
    }
    if cell.target != "llvm":
        options |= {"target": "cuda", "arch": cell.target}
    source = model.source(folders)
    if cell.mode != "inference":
        scale = SCALE if cell.precision == "f16" else None
        options["train"] = memc.BuildGradient(loss=model.loss, optimizer="sgd", loss_scale=scale)  # type: ignore[arg-type]
    if cell.mode == "training-half":
        whole = memc.compile(source, plan_only=True, **options).report
        options["memory_budget"] = facts["budget"] = whole.peak_bytes - whole.arena_bytes // 2
    done = memc.compile(source, **options)
    report = done.report
    facts |= {"arena": report.arena_bytes, "peak": report.peak_bytes, "kernels": report.kernels}
    check_plan(done.module, 64 if cell.target == "llvm" else 256, report.arena_bytes)
    if report.peak_bytes > facts.get("budget", report.peak_bytes):
        raise Wrong(f"expected a peak of at most {facts['budget']} bytes, got {report.peak_bytes}")
    if cell.target == "llvm" and cell.mode in model.runs and report.arena_bytes <= LARGEST:
        compare = compare_outputs if cell.mode == "inference" else compare_steps
        facts["error"] = compare(model, cell, source, done)


def relative(found: Array, expected: Array) -> float:
    """norm(found - expected) / norm(expected)."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    if a.shape != b.shape:
        return float("inf")
    distance, size = float(np.linalg.norm(a - b)), float(np.linalg.norm(b))
    return distance / size if size else distance


def compare_outputs(model: SweepModel, cell: Cell, source: Any, done: Any) -> float:
    """The largest error of an output, beside onnxruntime without optimizations, or numpy where that is not installed. Raises
    Wrong where it is too large, or a second run gives other bits."""
    feeds = model.feeds(cell.batch)
    executable = done.load()
    found, again = (executable.run_numpy({n: a.copy() for n, a in feeds.items()}) for _ in range(2))
    expected = reference_outputs(model, cell, source, feeds)
    allowed, largest = max(FORWARD[cell.precision], model.error), 0.0
    for name, want in expected.items():
        got = found[name]
        if got.tobytes() != again[name].tobytes():
            raise Wrong(f"output {name!r}: the second run gives other bits")
        if want.dtype.kind in "biu":
            if cell.precision == "f32" and not np.array_equal(got, want):
                raise Wrong(f"output {name!r}: {int((got != want).sum())} of {want.size} whole numbers differ")
            continue
        error = relative(got, want)
        if not error <= allowed:
            raise Wrong(f"output {name!r}: error {error:.1e}, allowed {allowed:.0e}")
        largest = max(largest, error)
    return largest


def reference_outputs(model: SweepModel, cell: Cell, source: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
    from memc.compile_options import Options
    from memc.driver import load_module
    from memc.ir.evaluate import evaluate

    try:
        import onnxruntime
    except ImportError:
        module = load_module(source, Options(input_shapes=model.shapes(cell.batch), bind=model.bind))
        return evaluate(module, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = str(source) if isinstance(source, (str, Path)) else source.SerializeToString()
    session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    constants = {name: np.asarray(value) for name, value in model.bind.items()}
    results = session.run(None, {i.name: {**constants, **feeds}[i.name] for i in session.get_inputs()})
    return dict(zip((o.name for o in session.get_outputs()), results))


def compare_steps(model: SweepModel, cell: Cell, source: Any, done: Any) -> float:
    """The larger error of two steps' losses and of what they change, beside numpy's evaluation of the unoptimized step in
    f32. Raises Wrong where it is too large, and larger than rounding explains: that of numpy's evaluation of the compiled step in
    a half, or of the step in f32 from states moved by a unit in the last place."""
    import memc
    from memc.compile_options import Options
    from memc.driver import load_module
    from memc.ir.core import Role

    train = memc.BuildGradient(loss=model.loss, optimizer="sgd")  # type: ignore[arg-type]
    module = load_module(source, Options(input_shapes=model.shapes(cell.batch), bind=model.bind, train=train))
    train.apply(module)
    feeds = model.feeds(cell.batch)
    given = {**feeds, "labels": np.random.default_rng(7).integers(0, 10, cell.batch)}
    before = {p.name: np.array(module.weights[p.name]) for p in module.main.params_of(Role.STATE)}
    expected = evaluated_steps(module, given, before)
    step = done.load()
    step.learning_rate = RATE
    losses = [float(step(*feeds.values(), given["labels"])) for _ in range(STEP_COUNT)]
    errors = errors_of_steps(before, (losses, step.state()), expected)
    allowed = STEPS[cell.precision]
    if not max(errors) <= allowed:
        if cell.precision == "f32":
            others = [evaluated_steps(module, given, rounded_otherwise(before, seed)) for seed in range(ROUNDINGS)]
        else:
            states = {p.name: np.array(done.module.weights[p.name]) for p in done.module.main.params_of(Role.STATE)}
            others = [evaluated_steps(done.module, given, states)]
        allowed = max(allowed, AS_NUMPY * max(max(errors_of_steps(before, each, expected)) for each in others))
    if not max(errors) <= allowed:
        shown = ", ".join(f"{e:.1e}" for e in errors)
        raise Wrong(f"errors of both losses and of the states: {shown}, allowed {allowed:.0e}")
    return max(errors)


Steps = tuple[list[float], Mapping[str, Array]]
"""The losses of a few steps, and the states after them."""


def evaluated_steps(module: Any, given: Mapping[str, Array], states: Mapping[str, Array]) -> Steps:
    """What numpy makes of a training step, again and again."""
    from memc.ir.evaluate import evaluate

    losses = []
    for _ in range(STEP_COUNT):
        results = evaluate(module, {**given, **states, "learning_rate": np.float32(RATE)})  # type: ignore[dict-item]
        states = {name: results[name] for name in states}
        losses.append(float(results["loss"]))
    return losses, states


def errors_of_steps(before: Mapping[str, Array], found: Steps, expected: Steps) -> list[float]:
    """Of each loss, and of the states by `moved_error`."""
    floats = [n for n, a in before.items() if a.dtype.kind == "f"]
    losses = [abs(a - b) / max(abs(b), 1e-2) for a, b in zip(found[0], expected[0])]
    return [*losses, moved_error(before, expected[1], found[1], floats)]


def moved_error(
    before: Mapping[str, Array], expected: Mapping[str, Array], found: Mapping[str, Array], names: list[str]
) -> float:
    """Of all states as one vector: the distance of what was found, relative to how far the steps moved them."""

    def squares(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
        return sum(float(np.sum((a[n].astype(np.float64) - b[n].astype(np.float64)) ** 2)) for n in names)

    return float((squares(found, expected) / squares(expected, before)) ** 0.5)

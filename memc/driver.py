# SPDX-License-Identifier: Apache-2.0
"""The whole pipeline, top to bottom: a model comes in, a planned module and an artifact go out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import onnx

from memc.ir.arrays import native
from memc.ir.core import Array, Module, Role
from memc.ir.errors import BudgetError, UsageError
from memc.ir.liveness import unoptimized_bytes
from memc.passes.base import Pass
from memc.passes.budget import over_budget
from memc.passes.build_gradient import BuildGradient
from memc.passes.manager import PassManager
from memc.passes.mixed_precision import MixedPrecision
from memc.passes.narrow_products import NarrowProducts
from memc.passes.pipelines import HALVES, KERNELS, PRECISIONS, Precision, Workspace
from memc.passes.pipelines import pipeline as pipeline_text
from memc.passes.rematerialize import Recomputation
from memc.passes.set_precision import SetPrecision
from memc.passes.undo import Snapshot
from memc.report import Report, make_report
from memc.runtime.target import Target

if TYPE_CHECKING:
    from memc.runtime.executable import Executable

Source = Union[str, Path, bytes, onnx.ModelProto, Module]
"""A path to .onnx, .memir, .json or .json.gz, the bytes of an ONNX file, a loaded model, or a module."""

GRAPH_SUFFIXES = (".json", ".json.gz")
"""Dataflow graphs of other frameworks (docs/plan.md)."""


@dataclass(frozen=True)
class Options:
    """How to compile. The command line's flags, by the same names."""

    target: str = "llvm"
    arch: str | None = None
    """GPU architecture for `cuda`, for example sm_90."""
    mcpu: str | None = None
    """CPU to generate code for; `native` by default."""
    opt_level: int = 2
    dims: Mapping[str, int] = field(default_factory=dict)
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    bind: Mapping[str, Any] = field(default_factory=dict)
    alignment: int | None = None
    """Bytes; None for the target's own (64 on CPU, 256 on CUDA)."""
    kernels: str = "auto"
    """`auto`, `library`: library kernels where they exist; `generated`: TVM's only."""
    precision: str = "f32"
    """`f32`: strict; `tf32`: factors of matrix products and convolutions rounded to TF32, on CUDA; `f16`, `bf16`: products and
    what lies between them in half precision (`mixed-precision`), for training with weights and updates in f32."""
    workspace: int | str = "free"
    """Beyond the least that library kernels need: `none`; `free`: from -O2 on, what lies free in the arena while they run; or
    as many bytes, even if the arena grows."""
    pass_pipeline: str | None = None
    """Replaces the level's pipeline."""
    disabled_passes: Sequence[str] = ()
    train: BuildGradient | None = None
    """Make a training step of the model, as this pass says."""
    memory_budget: int | None = None
    """Bytes of peak memory (arena, weights, states, inputs and outputs) that must not be exceeded. -O2 and -O3 run ops
    again where that keeps it."""
    plan_only: bool = False
    """Stop after the passes: module and plan, no code."""
    print_ir_after_all: bool = False
    print_ir_after_change: bool = False


@dataclass
class Compilation:
    """What `compile` hands back."""

    module: Module
    """After all passes, with every placement."""
    report: Report
    path: Path | None
    """The artifact folder; None with `plan_only`."""
    temporary: tempfile.TemporaryDirectory[str] | None = None
    """Keeps an artifact that was not given an output path, as long as this object lives."""

    def load(self) -> Executable:
        """The executable of the artifact. Raises UsageError after `plan_only`."""
        from memc.runtime.executable import load

        if self.path is None:
            raise UsageError("nothing to load: compiled with plan_only")
        executable = load(self.path)
        executable.keeps = self.temporary
        return executable


Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""


def load_module(source: Source, options: Options) -> Module:
    """The module of an ONNX model, of IR text or of a JSON dataflow graph. Raises MemcError."""
    if isinstance(source, Module):
        source.weights = {name: native(array, f"weight `{name}`") for name, array in source.weights.items()}
        return source
    if isinstance(source, (str, Path)) and str(source).endswith(GRAPH_SUFFIXES):
        from memc.frontend.graph import import_graph, read_graph

        return import_graph(read_graph(source))
    if isinstance(source, (str, Path)) and str(source).endswith(".memir"):
        from memc.ir.parser import parse

        path = Path(source)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: cannot read IR text: {error}") from None
        return parse(text, str(path))
    from memc.frontend.onnx import import_onnx

    return import_onnx(
        source, dims=options.dims, input_shapes=options.input_shapes, bind=options.bind, trainable=_trains(options)
    )


def _trains(options: Options) -> bool:
    """Whether a training step is made of the model, by `train` or in the pipeline."""
    if options.train is not None:
        return True
    return any(isinstance(item, BuildGradient) for item in PassManager.parse(options.pass_pipeline or "").passes)


def compile(
    source: Source,
    output: str | Path | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Compilation:
    """Compile a model into an artifact that runs from one statically planned arena.

    Args:
        source: path to an .onnx or .memir file, the bytes of an ONNX file, a loaded model, or a module (which is
            changed in place).
        output: the artifact folder to write, by convention ending in .memc; a temporary one if None.
        progress: called with each stage's name.
        **options: the fields of `Options`.

    Raises:
        MemcError: for anything wrong with the model, the options or the memory budget; no artifact is left behind.
    """
    chosen = checked_options(options)
    if output is not None and not isinstance(output, (str, Path)):
        raise UsageError(f"output: expected the path of a folder, got {output!r}")
    if not 0 <= chosen.opt_level <= 3:
        raise UsageError(f"optimization level: expected 0 to 3, got {chosen.opt_level}")
    if chosen.kernels not in KERNELS:
        raise UsageError(f"kernels: expected auto, library or generated, got {chosen.kernels}")
    precision = _precision(chosen)
    workspace = _workspace(chosen.workspace)
    target = Target.create(chosen.target, arch=chosen.arch, mcpu=chosen.mcpu)
    alignment = target.alignment if chosen.alignment is None else chosen.alignment
    if alignment < 1 or alignment & (alignment - 1):
        raise UsageError(f"alignment: expected a power of two of bytes, got {alignment}")
    if alignment < target.alignment and not chosen.plan_only:
        raise UsageError(f"alignment: expected at least {target.alignment}, which kernels rely on, got {alignment}")
    stages = _Stages(progress)

    with stages("import"):
        module = load_module(source, chosen)
        if chosen.train is not None:
            for step in training_passes(chosen.train, precision):
                step.apply(module)
        unoptimized = bytes_at_level_0(module, alignment)

    with stages("passes"):
        text = chosen.pass_pipeline
        if text is None:
            text = pipeline_text(
                chosen.opt_level,
                target.kind,
                alignment,
                chosen.kernels,
                chosen.memory_budget,
                workspace,
                "f32" if chosen.train is not None and chosen.precision in HALVES else precision,
            )
        manager = pass_manager(text, chosen)
        if chosen.pass_pipeline is not None and (chosen.train is None or precision == "tf32"):
            manager.passes = with_precision(manager.passes, precision)
        manager.run(module)
        report = make_report(
            module,
            unoptimized=unoptimized,
            given_order=manager.given_peak,
            alignment=alignment,
            target=str(target),
            opt_level=chosen.opt_level,
            dims=chosen.dims,
            kernels=0,
            seconds={},
            pipeline=str(manager),
            pass_seconds=manager.timings,
            recomputation=next((found for found in manager.findings if isinstance(found, Recomputation)), None),
        )
        _keep_budget(report, chosen.memory_budget, chosen.opt_level)

    if chosen.plan_only:
        return Compilation(module, _with_seconds(report, stages, 0), None)

    from memc.runtime import artifact, codegen

    _require_weights(module)
    with stages("codegen"):
        compiled = codegen.build(module, target)
    with stages("write"):
        temporary = None
        if output is None:
            temporary = tempfile.TemporaryDirectory(prefix="memc-")
            output = Path(temporary.name) / "model.memc"
        report = _with_seconds(report, stages, compiled.kernels)
        path = artifact.write(Path(output), module, compiled, report.to_dict(), _skeleton(source, chosen, module))
    return Compilation(module, _with_seconds(report, stages, compiled.kernels), path, temporary)


def _skeleton(source: Source, options: Options, module: Module) -> bytes | None:
    """The ONNX model that a training step was made of, without what the step's states hold; None for other artifacts."""
    if options.train is None or isinstance(source, Module) or str(source).endswith(".memir"):
        return None
    from memc.frontend.onnx.skeleton import without_data

    return without_data(source, {p.name for p in module.main.params_of(Role.STATE)})


def checked_options(given: Mapping[str, Any]) -> Options:
    """The options by name, with whole numbers as Python has them. Raises UsageError for an unknown one, or one of another type
    than `Options` says, before it is used."""
    try:
        options = Options(**given)
    except TypeError:
        known = [item.name for item in fields(Options)]
        wrong = next(name for name in given if name not in known)
        raise UsageError(f"compile: no option `{wrong}`; options are {', '.join(known)}") from None
    for name in ("opt_level", "alignment", "memory_budget"):
        value = getattr(options, name)
        if value is not None and not is_whole(value):
            raise UsageError(f"{name}: expected a whole number, got {value!r}")
    for name in ("arch", "mcpu", "pass_pipeline"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name}: expected text, got {value!r}")
    for name in ("dims", "input_shapes", "bind"):
        value = getattr(options, name)
        if not isinstance(value, Mapping):
            raise UsageError(f"{name}: expected a dict by name, got {value!r}")
    if isinstance(options.disabled_passes, str):
        raise UsageError(f"disabled_passes: expected a list of names, got {options.disabled_passes!r}")
    if options.train is not None and not isinstance(options.train, BuildGradient):
        raise UsageError(f"train: expected a BuildGradient, such as memc.BuildGradient(), got {options.train!r}")
    for name, size in options.dims.items():
        if not is_whole(size):
            raise UsageError(f"dims: `{name}`: expected a whole number, got {size!r}")
    for name, shape in options.input_shapes.items():
        if not isinstance(shape, (Sequence, np.ndarray)) or isinstance(shape, str) or not all(map(is_whole, shape)):
            raise UsageError(f"input_shapes: `{name}`: expected a list of whole numbers, got {shape!r}")
    numbers: dict[str, Any] = {
        name: int(value)
        for name in ("opt_level", "alignment", "memory_budget", "workspace")
        if is_whole(value := getattr(options, name))
    }
    return replace(options, dims={name: int(size) for name, size in options.dims.items()}, **numbers)


def is_whole(value: object) -> bool:
    """Whether it is a whole number, numpy's included."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _workspace(given: int | str) -> Workspace:
    """Raise UsageError for anything else."""
    if given == "none":
        return "none"
    if given == "free":
        return "free"
    if isinstance(given, str) or not is_whole(given) or given < 0:
        raise UsageError(f"workspace: expected none, free or a number of bytes, got {given!r}")
    return given


def _precision(options: Options) -> Precision:
    """Raise UsageError for a precision that does not exist, or that nothing would be computed with."""
    found = next((known for known in PRECISIONS if known == options.precision), None)
    if found is None:
        raise UsageError(f"precision: expected one of {', '.join(PRECISIONS)}, got {options.precision!r}")
    if found != "tf32":
        return found
    if options.target != "cuda":
        raise UsageError(f"precision tf32: expected target cuda, got {options.target}, which has f32, f16 and bf16")
    if options.kernels == "generated":
        raise UsageError("precision tf32: generated kernels compute in f32; use kernels auto or library")
    return found


def training_passes(train: BuildGradient, precision: Precision) -> Sequence[Pass]:
    """What makes a training step of a model in a precision."""
    if precision not in ("f16", "bf16"):
        return [train]
    if precision == "f16" and train.loss_scale is None:
        train = replace(train, loss_scale="dynamic")
    return [MixedPrecision(precision, weights="keep"), train, NarrowProducts()]


def with_precision(passes: Sequence[Pass], precision: Precision) -> list[Pass]:
    """A given pipeline, in a precision."""
    if precision == "f32":
        return list(passes)
    if precision == "tf32":
        return [*passes, SetPrecision("tf32")]
    gradient = next((number for number, item in enumerate(passes) if isinstance(item, BuildGradient)), None)
    if gradient is None:
        return [MixedPrecision(precision), *passes]
    train = passes[gradient]
    assert isinstance(train, BuildGradient)
    first, *rest = training_passes(train, precision)
    return [first, *passes[:gradient], *rest, *passes[gradient + 1 :]]


def bytes_at_level_0(module: Module, alignment: int) -> int:
    """Arena bytes of the module without any memory optimization (-O0), leaving it as it is."""
    before = Snapshot.of(module, module.main)
    manager = PassManager.parse("materialize-returns,decompose")
    manager.verify_each = False  # The pipeline's own run of them is verified.
    manager.run(module)
    unoptimized = unoptimized_bytes(module.main, alignment)
    before.restore()
    return unoptimized


def pass_manager(text: str, options: Options) -> PassManager:
    """The passes of pipeline `text` without the disabled ones. Raises UsageError for unknown names."""
    manager = PassManager.parse(text)
    present = {item.name for item in manager.passes}
    for name in options.disabled_passes:
        if name not in present:
            raise UsageError(f"disabled pass `{name}`: expected one of {', '.join(sorted(present))}")
    manager.passes = [item for item in manager.passes if item.name not in options.disabled_passes]
    manager.print_ir_after_all = options.print_ir_after_all
    manager.print_ir_after_change = options.print_ir_after_change
    return manager


def _keep_budget(report: Report, budget: int | None, opt_level: int) -> None:
    if budget is not None and report.peak_bytes > budget:
        error = over_budget(budget, report.arena_bytes, report.weights_bytes, report.io_bytes)
        raise error if opt_level >= 2 else BudgetError(f"{error} at -O{opt_level}; -O2 may need less")


def _require_weights(module: Module) -> None:
    missing = [p.name for p in module.main.params_of(Role.WEIGHT, Role.STATE) if p.name not in module.weights]
    if missing:
        raise UsageError(
            f"no data for weight `%{missing[0]}` and {len(missing) - 1} more: IR text carries no weights; compile the "
            f"ONNX model, or pass a Module with `weights`"
        )


def _with_seconds(report: Report, stages: _Stages, kernels: int) -> Report:
    return replace(report, seconds=stages.rounded(), kernels=kernels)


class _Stages:
    """Wall-clock seconds per stage."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if self.progress:
            self.progress(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def rounded(self) -> dict[str, float]:
        named = {name: round(value, 4) for name, value in self.seconds.items()}
        return {**named, "total": round(sum(self.seconds.values()), 4)}


def run(path: str | Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Load an artifact and run it once on numpy arrays; outputs by name."""
    from memc.runtime.executable import load

    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs: expected a dict of arrays by name, got {type(inputs).__name__}")
    return {name: value.numpy() if hasattr(value, "numpy") else value for name, value in load(path)(**inputs).items()}

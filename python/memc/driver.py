# SPDX-License-Identifier: Apache-2.0
"""The whole pipeline, top to bottom: a model comes in, a planned module and an artifact go out."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memc.compile_options import Keywords, Options, checked_options, with_options
from memc.frontend.sources import Reading, Source, is_onnx
from memc.frontend.sources import load as load_source
from memc.garbage import few_collections
from memc.ir.core import Array, Role
from memc.ir.errors import BudgetError, CheckError, CodegenError, InvalidError, UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.ir.module import Module
from memc.ir.progress import Reached, listening
from memc.ir.sizes import format_size
from memc.ir.snapshot import Beginning, is_raw
from memc.passes.budget import Budget, over_budget
from memc.passes.check_plans import check_whole_plan
from memc.passes.compose_pipeline import body_precision, fusing_apart, in_precision, with_head, without
from memc.passes.kernels.fused_groups import split_groups
from memc.passes.layout.channels_last import ChannelsLast, has_channels_last
from memc.passes.manager import PassManager
from memc.passes.pipelines import pipeline
from memc.passes.training.build_gradient import BuildGradient
from memc.report.compile_report import Report, baseline, make_report
from memc.runtime.artifact.write import write
from memc.runtime.code_target import CodeTarget

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from memc.runtime.codegen import CompiledModule
    from memc.runtime.execute.executable import Executable

_log = logging.getLogger("memc")

ADDRESSABLE = 2**47
"""Bytes."""


@dataclass(repr=False)
class Compilation:
    """What `compile` hands back."""

    module: Module
    """After all passes, with every placement."""
    report: Report
    path: Path | None
    """The artifact folder; None with `plan_only`."""
    temporary: tempfile.TemporaryDirectory[str] | None = None
    """Keeps an artifact that was not given an output path, as long as this object lives."""

    def __repr__(self) -> str:
        where = "plan only" if self.path is None else str(self.path)
        return f"<Compilation: {where}; {self.report!r}>"

    def load(self) -> Executable:
        """The executable of the artifact. Raises UsageError after `plan_only`."""
        from memc.runtime.execute.load import load

        if self.path is None:
            raise UsageError("nothing to load: compiled with plan_only")
        executable = load(self.path)
        executable.keeps = self.temporary
        return executable


Progress = Callable[[str], None]
"""Called with the name of each stage as it begins, and within `passes` with that of each pass: `passes: fuse (3 of 14)`. Some times a
second, while a search or the building of kernels goes on, with what that has reached after two dashes: `passes: assign-addresses (9 of
14) -- addresses: 40 %, 11.2 MiB so far, 11.0 MiB at least`. What it raises ends the compilation."""


def load_module(source: Source, options: Options) -> Module:
    """The module of an ONNX model, of a program of PyTorch, of IR text or of a JSON dataflow graph; text and modules are verified. Raises MemcError."""
    reading = Reading(options.dims, options.input_shapes, options.bind, options.max_size, _trains(options))
    return load_source(source, reading)


def _name_of(source: Source) -> str:
    """What messages call a model."""
    return str(source) if isinstance(source, (str, Path)) else "module"


def _trains(options: Options) -> bool:
    """Whether a training step is made of the model, by `train` or in the pipeline."""
    if options.train is not None:
        return True
    return any(isinstance(item, BuildGradient) for item in PassManager.parse(options.pass_pipeline or "").passes)


@with_options
def compile(
    source: Source,
    output: str | Path | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[Keywords],
) -> Compilation:
    """Compile a model into an artifact that runs from one statically planned arena.

    Args:
        source: path to an .onnx, .pt2 or .memir file, the bytes of an ONNX file, a loaded model, an `ExportedProgram` of
            PyTorch, or a module (which is changed in place).
        output: the artifact folder to write, by convention ending in .memc; a temporary one if None.
        progress: called with each stage's name as it begins, with each pass's: `passes: fuse (3 of 14)`, and with what searches reach.
        **options: the fields of `Options`.

    Raises:
        MemcError: for anything wrong with the model, the options or the memory budget; no artifact is left behind.
    """
    chosen = checked_options(options)
    _require_call(output, progress)
    target = chosen.code_target()
    _require_alignment(target, chosen.plan_only)
    stages = _Stages(progress)
    beginning = Beginning.of(source) if isinstance(source, Module) else None
    apart: set[str] = set()
    while True:
        with stages("import"):
            module = load_module(source if beginning is None else beginning.restore(), chosen)
            module.target = target.target.with_memory_of(module.target)
            given = _name_of(source) if any(op.region is not None for op in module.main.ops) else None
            for function in filter(is_raw, module.functions):
                split_groups(function, apart)
        try:
            with stages("passes"):
                report = _planned(module, chosen, target, apart, stages.on_pass)
        except BudgetError as error:
            chosen = _with_less(chosen, module, error)
            continue
        if chosen.plan_only:
            return Compilation(module, _with_seconds(report, stages, 0), None)
        _require_weights(module)
        _require_addressable(module)
        try:
            with stages("codegen"):
                compiled = _code(module, target.mcpu, given)
                if chosen.pass_pipeline is not None:
                    _check_given_plan(module)
            break
        except CodegenError as error:
            if apart.issuperset(error.groups):
                raise
            _log.warning("%s; compiling again without fusing them", error)
            apart.update(error.groups)
    with stages("write"):
        temporary = None if output is not None else tempfile.TemporaryDirectory(prefix="memc-")
        folder = Path(temporary.name) / "model.memc" if temporary is not None else Path(output or "")
        report = _with_seconds(report, stages, compiled.kernels)
        path = write(folder, module, compiled, report.to_dict(), _skeleton(source, chosen, module))
    return Compilation(module, _with_seconds(report, stages, compiled.kernels), path, temporary)


def _with_less(chosen: Options, module: Module, error: BudgetError) -> Options:
    """Options with which a module whose plan misses the budget may take less. Raises the error again where there are none."""
    if chosen.pass_pipeline is not None or not has_channels_last(module):
        raise error
    return replace(chosen, disabled_passes=(*chosen.disabled_passes, ChannelsLast.name))


def _require_call(output: object, progress: object) -> None:
    """Raise UsageError for arguments beside the options that are of another kind."""
    if progress is not None and not callable(progress):
        raise UsageError(f"progress: expected a function of a stage's name, got {shown(progress)}")
    if output is not None and not isinstance(output, (str, Path)):
        raise UsageError(f"output: expected the path of a folder, got {output!r}")


def _require_alignment(target: CodeTarget, plan_only: bool) -> None:
    """Raise UsageError for an alignment of fewer bytes than code relies on."""
    if target.alignment < target.kernel_alignment and not plan_only:
        raise UsageError(
            f"alignment: expected at least {target.kernel_alignment}, which kernels rely on, got {target.alignment}"
        )


def _planned(
    module: Module,
    chosen: Options,
    target: CodeTarget,
    apart: Collection[str],
    on_pass: Callable[[str, int, int], None],
) -> Report:
    """Run the passes, and report what they planned. Raises InvalidError for a plan of a given pipeline that does not suit the
    code, and BudgetError for more memory than the budget."""
    manager = _manager(chosen, apart)
    manager.on_pass = on_pass
    manager.run(module)
    if chosen.pass_pipeline is not None:
        _check_given_plan(module, partial=True)
    report = make_report(module, manager, target=str(target), opt_level=chosen.opt_level, dims=chosen.dims)
    _keep_budget(report, chosen.budget, chosen.opt_level)
    _keep_host_budget(report, chosen.host_budget)
    return report


def _manager(chosen: Options, apart: Collection[str]) -> PassManager:
    """The passes of a compilation. `apart`: the results of groups that are not to be fused."""
    precision = body_precision(chosen.train, chosen.precision)
    if chosen.pass_pipeline is not None:
        body = PassManager.parse(chosen.pass_pipeline).passes
        body = in_precision(without(body, chosen.disabled_passes), precision)
    else:
        level, budget, workspace = chosen.opt_level, chosen.budget, chosen.workspace
        text = pipeline(
            level,
            chosen.target,
            chosen.kernels,
            budget,
            workspace,
            precision,
            chosen.offload,
            chosen.host_budget,
            chosen.link,
            chosen.profile,
            chosen.offload_states,
        )
        body = without(PassManager.parse(text).passes, chosen.disabled_passes)
    train = chosen.train
    if train is not None and chosen.pass_pipeline is None and (chosen.opt_level < 2 or chosen.kernels == "generated"):
        train = replace(train, attention=False)
    manager = with_head(fusing_apart(body, apart), train, chosen.precision)
    manager.measure = baseline
    manager.print_ir_after_all = chosen.print_ir_after_all
    manager.print_ir_after_change = chosen.print_ir_after_change
    return manager


def _skeleton(source: Source, options: Options, module: Module) -> bytes | None:
    """The ONNX model that a training step was made of, without what the step's states hold; None for other artifacts."""
    if options.train is None or not is_onnx(source):
        return None
    from memc.frontend.onnx.skeleton import without_data

    return without_data(source, {p.name for p in module.main.params_of(Role.STATE)})


def _code(module: Module, mcpu: str, given: str | None) -> CompiledModule:
    """The code of a planned module. `given` names a model that had `fused` groups before any pass: what is wrong with those
    is an UnsupportedError. Raises CodegenError for groups of which no kernel compiles."""
    from memc.runtime import codegen

    try:
        return codegen.build(module, mcpu)
    except codegen.KernelError as error:
        if given is None:
            raise
        raise UnsupportedError(f"{given}: a `fused` group that no kernel can be made of: {error}") from error


def _check_given_plan(module: Module, partial: bool = False) -> None:
    """Raise InvalidError unless a plan that a given pipeline made, or left as it was read, suits the target's code. Of a
    `partial` plan, which may lack placements, only those that it has must."""
    try:
        check_whole_plan(module, module.target.alignment, partial=partial)
    except CheckError as error:
        raise InvalidError(f"{error} (end the pipeline with assign-addresses, without another alignment)") from None


def _keep_budget(report: Report, budget: Budget | None, opt_level: int) -> None:
    if budget is None:
        return
    without = report.peak_bytes if report.recomputation is None else report.recomputation.peak_bytes_without
    most = budget.of(without)
    if report.peak_bytes > most:
        error = over_budget(most, report.footprint)
        raise error if opt_level >= 2 else BudgetError(f"{error} at -O{opt_level}; -O2 may need less")


def _keep_host_budget(report: Report, budget: int | None) -> None:
    if budget is not None and report.host_bytes > budget:
        raise BudgetError(
            f"host budget of {budget} bytes ({format_size(budget)}) cannot be met: copies take {report.host_bytes} bytes with their "
            "addresses; allow as many, or a larger memory budget"
        )


def _require_addressable(module: Module) -> None:
    """Raise UnsupportedError for a value that no process could hold: such can be planned, but code for it cannot be made."""
    for value in module.main.values():
        if value.type.nbytes >= ADDRESSABLE:
            raise UnsupportedError(
                f"%{value.name}: expected a tensor below 2**47 bytes, which is what a process can address, got {value.type} "
                "(--plan-only plans it)"
            )


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
        self.stage = ""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if self.progress:
            self.progress(name)
        self.stage = name
        start = time.perf_counter()
        with few_collections(), listening(self.on_reached if self.progress else None):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def on_pass(self, name: str, number: int, total: int) -> None:
        if self.progress:
            self.stage = f"passes: {name} ({number} of {total})"
            self.progress(self.stage)

    def on_reached(self, reached: Reached) -> None:
        if self.progress:
            self.progress(f"{self.stage} -- {reached}")

    def rounded(self) -> dict[str, float]:
        named = {name: round(value, 4) for name, value in self.seconds.items()}
        return {**named, "total": round(sum(self.seconds.values()), 4)}


def run(path: str | Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Load an artifact and run it once on numpy arrays; outputs by name."""
    from memc.runtime.execute.load import load

    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs: expected a dict of arrays by name, got {type(inputs).__name__}")
    return {name: value.numpy() if hasattr(value, "numpy") else value for name, value in load(path)(**inputs).items()}

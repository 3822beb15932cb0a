# SPDX-License-Identifier: Apache-2.0
"""What pictures are made of: compilations, modules and plans, and files of many kinds, by the endings of their names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union

from memc import driver
from memc.compile_options import Keywords, Options, checked_options
from memc.driver import Compilation
from memc.frontend.graph import Graph, read_graph
from memc.frontend.sources import FORMATS, ONNX, format_of
from memc.ir.errors import InvalidError, MemcError, UnsupportedError, UsageError
from memc.ir.messages import shown
from memc.ir.module import Module
from memc.passes.budget import Budget
from memc.passes.manager import PassManager
from memc.planning import Plan, plan
from memc.report.offload import Offloaded
from memc.runtime.artifact.manifest import TEXT
from memc.runtime.artifact.read import content, read_manifest

from .from_module import Told, is_planned, picture_of_module
from .from_plan import picture_of_plan
from .onnx_nodes import source_lines
from .picture import PlanPicture

PictureSource = Union[str, Path, Compilation, Module, Plan, Graph, PlanPicture]
"""A path; or a compilation, module, plan, graph or picture."""

SNAPSHOT = (".pickle", ".pkl")

PROBLEM = (".csv",)

KNOWN = ", ".join((*(suffix for each in FORMATS for suffix in each.suffixes), *PROBLEM, *SNAPSHOT))


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    picture: PlanPicture
    module: Module | None = None
    """Of which it is; None for what has no ops of memc's."""
    model: Path | None = None
    """The ONNX file that the module was made of."""


def read_subject(
    source: PictureSource,
    *,
    title: str | None = None,
    device: int | None = None,
    op_times: str | Path | None = None,
    progress: driver.Progress | None = None,
    options: Mapping[str, Any] | None = None,
) -> Subject:
    """What there is to show of a source. A model is compiled with `options`, without code; IR text that is planned is taken as it is; a problem
    without addresses is planned.

    Args:
        title: for the page; by default the name of the file.
        device: of a snapshot with several.
        op_times: a file of measured times, of `memc bench --save-profile`, for the ops of models and artifacts.
        progress: called with each stage's name.
        options: fields of `Options`.

    Raises:
        MemcError: for anything wrong with the source or the options.
    """
    how = _How(title, device, None if op_times is None else str(op_times), progress, options or {})
    found = _subject(source, how)
    if op_times is not None and found.module is None:
        raise UsageError(f"op_times {op_times}: expected a model or an artifact beside it, whose ops memc runs")
    return found


@dataclass(frozen=True)
class _How:
    """What was asked for beside the source."""

    title: str | None
    device: int | None
    op_times: str | None
    progress: driver.Progress | None
    options: Mapping[str, Any]

    def told(self, title: str) -> Told:
        """What is known of a plan before it is read. `title`: where none was asked for."""
        return Told(self.title or title, op_times=self.op_times)


def _subject(source: PictureSource, how: _How) -> Subject:
    if isinstance(source, PlanPicture):
        return Subject(source)
    if isinstance(source, Compilation):
        return _of_compilation(source, how.told("compilation"))
    if isinstance(source, Plan):
        return Subject(picture_of_plan(source, how.title or "plan"))
    if isinstance(source, Graph):
        return Subject(picture_of_plan(plan(source), how.title or "graph", source))
    if isinstance(source, Module):
        return _of_module(source, how.told("module"), how)
    if not isinstance(source, (str, Path)):
        raise UsageError(f"source: expected a path, a compilation, a module or a plan, got {shown(source)}")
    return _of_path(source, how)


def _of_path(path: str | Path, how: _How) -> Subject:
    name, found, told = str(path), format_of(path), how.told(Path(path).name)
    if how.device is not None and not name.endswith(SNAPSHOT):
        raise UsageError(f"{path}: device {how.device}: expected a memory snapshot of PyTorch, which alone has devices")
    if Path(path).is_dir():
        return _of_artifact(Path(path), told)
    if name.endswith(SNAPSHOT):
        from .from_snapshot import picture_of_snapshot  # Which loads all that estimates memory.

        return Subject(replace(picture_of_snapshot(path, how.device), title=told.title))
    if name.endswith(PROBLEM):
        return Subject(picture_of_plan(plan(path), told.title))
    if found is not None and found.holds == "graph":
        graph = read_graph(path)
        return Subject(picture_of_plan(plan(graph), told.title, graph))
    if found is not None and found.holds == "ir":
        return _of_module(driver.load_module(path, Options()), told, how)
    if found is None and Path(path).exists():
        raise UnsupportedError(f"{path}: expected an artifact, or a file whose name ends in {KNOWN}")
    compilation = _compiled(path, how)
    if found is not ONNX:
        return _of_compilation(compilation, told)
    return replace(_of_compilation(compilation, replace(told, places=source_lines(path))), model=Path(path))


def _of_module(module: Module, told: Told, how: _How) -> Subject:
    if is_planned(module):
        return Subject(picture_of_module(module, told), module)
    return _of_compilation(_compiled(module, how), told)


def _compiled(source: str | Path | Module, how: _How) -> Compilation:
    checked_options(how.options)
    keywords: Keywords = {**how.options, "plan_only": True}  # type: ignore[typeddict-item]
    return driver.compile(source, progress=how.progress, **keywords)


def _of_compilation(compilation: Compilation, told: Told) -> Subject:
    report = compilation.report
    without = None if report.recomputation is None else report.recomputation.peak_bytes_without
    told = replace(
        told,
        pipeline=report.pipeline,
        budget=budget_of(report.pipeline, without),
        reasons=_reasons(report.offload),
        facts=(("ops", f"{report.ops:,}"), ("target", report.target)),
    )
    return Subject(picture_of_module(compilation.module, told), compilation.module)


def _reasons(found: Offloaded | None) -> dict[str, tuple[str, str]]:
    return {} if found is None else {each.value: (each.decision, each.reason) for each in found.values}


def budget_of(pipeline: str, without: int | None) -> int | None:
    """Bytes of the peak that a pipeline allows, where `without` bytes are taken without a budget; None where it allows any, or that is not
    known."""
    for item in PassManager.parse(pipeline).passes:
        budget = getattr(item, "budget", None)
        if isinstance(budget, Budget) and getattr(item, "total", False):
            return budget.of(without) if without is not None else budget.bytes
    return None


def _of_artifact(path: Path, told: Told) -> Subject:
    """An artifact's, read from its IR text. Raises InvalidError for a folder that is none."""
    from memc.ir.text.parser import parse

    manifest = read_manifest(path)
    text = content(manifest, TEXT).decode()
    module = parse(text, str(path / TEXT))
    report = manifest.report
    moved = report.get("offload") or {}
    try:
        reasons = {each["value"]: (each["decision"], each["reason"]) for each in moved.get("values", ())}
    except (KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise InvalidError(f"{path}: damaged report of copies ({what}); compile again") from None
    pipeline = str(report.get("pipeline", ""))
    try:
        budget = budget_of(pipeline, (report.get("recomputation") or {}).get("peak_bytes_without"))
    except MemcError:  # Of passes of a package that is not installed here.
        pipeline, budget = "", None
    facts = (("ops", f"{len(module.main.ops):,}"), ("target", json.dumps(report.get("target", "")).strip('"')))
    return Subject(
        picture_of_module(module, replace(told, pipeline=pipeline, budget=budget, reasons=reasons, facts=facts)), module
    )

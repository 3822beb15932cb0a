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
from memc.frontend.sources import GRAPH, MEMIR, ONNX, format_of
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
from .from_snapshot import picture_of_snapshot
from .onnx_nodes import source_lines
from .picture import PlanPicture

PictureSource = Union[str, Path, Compilation, Module, Plan, Graph, PlanPicture]
"""A path; or a compilation, module, plan, graph or picture."""

SNAPSHOT = (".pickle", ".pkl")

PROBLEM = (".csv",)

KNOWN = ".onnx, .memir, .csv, .json, .json.gz, .pickle or .pkl"


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
    progress: driver.Progress | None = None,
    options: Mapping[str, Any] | None = None,
) -> Subject:
    """What there is to show of a source. A model is compiled with `options`, without code; IR text that is planned is taken as it is; a problem
    without addresses is planned.

    Args:
        title: for the page; by default the name of the file.
        device: of a snapshot with several.
        progress: called with each stage's name.
        options: fields of `Options`.

    Raises:
        MemcError: for anything wrong with the source or the options.
    """
    if isinstance(source, PlanPicture):
        return Subject(source)
    if isinstance(source, Compilation):
        return _of_compilation(source, title or "compilation", {})
    if isinstance(source, Plan):
        return Subject(picture_of_plan(source, title or "plan"))
    if isinstance(source, Graph):
        return Subject(picture_of_plan(plan(source), title or "graph", source))
    if isinstance(source, Module):
        return _of_module(source, title or "module", options or {}, progress)
    if not isinstance(source, (str, Path)):
        raise UsageError(f"source: expected a path, a compilation, a module or a plan, got {shown(source)}")
    return _of_path(source, title or Path(source).name, device, progress, options or {})


def _of_path(
    path: str | Path,
    title: str,
    device: int | None,
    progress: driver.Progress | None,
    options: Mapping[str, Any],
) -> Subject:
    name, found = str(path), format_of(path)
    if device is not None and not name.endswith(SNAPSHOT):
        raise UsageError(f"{path}: device {device}: expected a memory snapshot of PyTorch, which alone has devices")
    if Path(path).is_dir():
        return _of_artifact(Path(path), title)
    if name.endswith(SNAPSHOT):
        return Subject(picture_of_snapshot(path, device))
    if name.endswith(PROBLEM):
        return Subject(picture_of_plan(plan(path), title))
    if found is GRAPH:
        graph = read_graph(path)
        return Subject(picture_of_plan(plan(graph), title, graph))
    if found is MEMIR:
        return _of_module(driver.load_module(path, Options()), title, options, progress)
    if found is not ONNX and Path(path).exists():
        raise UnsupportedError(f"{path}: expected an artifact, or a file whose name ends in {KNOWN}")
    compilation = _compiled(path, options, progress)
    if found is not ONNX:
        return _of_compilation(compilation, title, {})
    return replace(_of_compilation(compilation, title, source_lines(path)), model=Path(path))


def _of_module(module: Module, title: str, options: Mapping[str, Any], progress: driver.Progress | None) -> Subject:
    if is_planned(module):
        return Subject(picture_of_module(module, Told(title)), module)
    return _of_compilation(_compiled(module, options, progress), title, {})


def _compiled(source: str | Path | Module, options: Mapping[str, Any], progress: driver.Progress | None) -> Compilation:
    checked_options(options)
    keywords: Keywords = {**options, "plan_only": True}  # type: ignore[typeddict-item]
    return driver.compile(source, progress=progress, **keywords)


def _of_compilation(compilation: Compilation, title: str, places: Mapping[str, str]) -> Subject:
    report = compilation.report
    told = Told(
        title,
        report.pipeline,
        budget_of(report.pipeline, None if report.recomputation is None else report.recomputation.peak_bytes_without),
        _reasons(report.offload),
        places,
        (("ops", f"{report.ops:,}"), ("target", report.target)),
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


def _of_artifact(path: Path, title: str) -> Subject:
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
    return Subject(picture_of_module(module, Told(title, pipeline, budget, reasons, facts=facts)), module)

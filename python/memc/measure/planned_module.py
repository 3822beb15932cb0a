# SPDX-License-Identifier: Apache-2.0
"""The planned module of an artifact, beside what was measured of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memc.ir.copies import has_copies
from memc.ir.cost_model import DEVICES, CostModel
from memc.ir.errors import InvalidError
from memc.ir.module import Module
from memc.measure.link import LinkTimes
from memc.measure.op_times import Profile
from memc.passes.measured_times import Rates
from memc.passes.offload.link_rates import link_of
from memc.report.timeline import timeline
from memc.report.trace import events_of
from memc.solvers.offload import Lanes

if TYPE_CHECKING:
    from memc.runtime.artifact.manifest import Manifest


def planned_module(manifest: Manifest) -> Module:
    """What the artifact's text shows. Raises InvalidError if that is none of its plan."""
    from memc.ir.text.parser import parse
    from memc.runtime.artifact.manifest import TEXT
    from memc.runtime.artifact.read import content

    path = manifest.path / TEXT
    try:
        module = parse(content(manifest, TEXT).decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path}: cannot read the planned module: {error}; compile again") from None
    if any(op >= len(module.main.ops) for op, _ in manifest.calls):
        raise InvalidError(f"{path}: has other ops than the plan; compile again")
    return module


def planned_events(
    manifest: Manifest, module: Module, profile: Profile, link: LinkTimes | None
) -> list[dict[str, Any]]:
    """The plan's timeline as a process of a trace, if it has copies: ops take what `profile` measured, and copies what `link`
    did or else the plan counted on."""
    if not has_copies(module.main):
        return []
    costs = CostModel(DEVICES[manifest.kind], profile.seconds_by_signature())
    lanes = _lanes_of_report(manifest, module) if link is None else Lanes(link.out.lane(), link.back.lane())
    time = timeline(module.main, costs.cost, lanes)
    return events_of(module.main, time, module.target.alignment, process=1, title="plan, with measured times")


def _lanes_of_report(manifest: Manifest, module: Module) -> Lanes:
    """The lanes that the artifact's report has; where it has none, those of the target."""
    try:
        found = manifest.report["offload"]["lanes"]
        return Lanes(Rates.of(found["out"]).lane(), Rates.of(found["in"]).lane())
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return link_of(None, module.target).lanes()

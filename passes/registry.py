# SPDX-License-Identifier: Apache-2.0
"""All passes by name: memc's own, one line each, and those that other packages offer as `memc.passes` entry points."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from memc.ir.messages import shown
from memc.passes.base import Pass
from memc.passes.chunk.chunk import Chunk
from memc.passes.kernels.find_last import FindLast
from memc.passes.kernels.fuse import Fuse
from memc.passes.kernels.fuse_library import FuseLibrary
from memc.passes.kernels.pack_weights import PackWeights
from memc.passes.kernels.recognize_attention import RecognizeAttention
from memc.passes.kernels.select_kernels import SelectKernels
from memc.passes.kernels.select_workspace import SelectWorkspace
from memc.passes.launches.delay_updates import DelayUpdates
from memc.passes.launches.join_kernels import JoinKernels
from memc.passes.launches.join_rows import JoinRows
from memc.passes.launches.join_updates import JoinUpdates
from memc.passes.layout.channels_last import ChannelsLast
from memc.passes.offload.group_copies import GroupCopies
from memc.passes.offload.host_states import HostStates
from memc.passes.offload.offload import Offload
from memc.passes.order.reorder import Reorder
from memc.passes.placement.assign_addresses import AssignAddresses
from memc.passes.placement.donate import Donate
from memc.passes.placement.in_place import InPlace
from memc.passes.placement.share import Share
from memc.passes.precision.mixed_precision import MixedPrecision
from memc.passes.precision.narrow_products import NarrowProducts
from memc.passes.precision.set_precision import SetPrecision
from memc.passes.recompute.rematerialize import Rematerialize
from memc.passes.rewrite.canonicalize import Canonicalize
from memc.passes.rewrite.decompose import Decompose
from memc.passes.rewrite.join_products import JoinProducts
from memc.passes.rewrite.materialize_returns import MaterializeReturns
from memc.passes.rewrite.recognize import Recognize
from memc.passes.training.build_gradient import BuildGradient
from memc.passes.training.mirror import Mirror

PASSES: tuple[type[Pass], ...] = (
    AssignAddresses,
    BuildGradient,
    Canonicalize,
    ChannelsLast,
    Chunk,
    Decompose,
    DelayUpdates,
    Donate,
    FindLast,
    Fuse,
    FuseLibrary,
    InPlace,
    JoinKernels,
    JoinProducts,
    JoinRows,
    JoinUpdates,
    MaterializeReturns,
    Mirror,
    MixedPrecision,
    NarrowProducts,
    PackWeights,
    Recognize,
    RecognizeAttention,
    Offload,
    GroupCopies,
    HostStates,
    Rematerialize,
    Reorder,
    SelectKernels,
    SelectWorkspace,
    SetPrecision,
    Share,
)


_log = logging.getLogger("memc")

GROUP = "memc.passes"

SLOW = 5.0
"""Seconds after which it is said which package is slow to load."""


class Passes(dict[str, type[Pass]]):
    """Every pass by name."""

    def __init__(self) -> None:
        super().__init__((kind.name, kind) for kind in PASSES)
        self.broken: dict[str, str] = {}
        """Why a third party's pass cannot be had, by the name of its entry point."""
        self.packages: dict[type[Pass], str] = {}
        """Which package a pass of a third party is from, and where it is in there."""


@cache
def known_passes() -> Passes:
    """Every pass by name: memc's own, and those of the entry points that load. Others are left out, with a warning; an
    error is due to those only who ask for one."""
    found = Passes()
    try:
        entries = list(entry_points(group=GROUP))
    except Exception as error:
        _log.warning(
            "entry points of group %s cannot be read (%s): only memc's own passes are known", GROUP, line(error)
        )
        return found
    for entry in entries:
        package = package_of(entry)
        start = time.perf_counter()
        why = _added(found, entry, package)
        if why is not None:
            found.broken.setdefault(entry.name, why)
            _log.warning("%s; the pass is left out", why)
        if (seconds := time.perf_counter() - start) > SLOW:
            _log.warning("pass %r of %s took %.0f s to load", entry.name, package, seconds)
    return found


def third_party(kind: type[Pass]) -> str | None:
    """Who a pass is from, for messages; None for memc's own."""
    if kind.__module__.split(".")[0] == "memc":
        return None
    return known_passes().packages.get(kind, f"module {kind.__module__}")


def line(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def package_of(entry: EntryPoint) -> str:
    """The package that offers an entry point, and where the pass is in there."""
    try:
        name = None if entry.dist is None else entry.dist.metadata["Name"]
    except Exception:  # Its metadata is not there, or damaged.
        name = None
    return f"package {name} ({entry.value})" if name else f"an unknown package ({entry.value})"


def _added(found: Passes, entry: EntryPoint, package: str) -> str | None:
    """Add a third party's pass; why that cannot be, if it cannot."""
    who = f"pass {entry.name!r} of {package}"
    if entry.name in found:
        other = found.packages.get(found[entry.name], "memc")
        return f"{who}: the name is taken by {other}"
    try:
        with redirect_stdout(sys.stderr):  # Standard output is for results.
            kind = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A module may leave by sys.exit, too.
        return f"{who} does not load: {line(error)}"
    if not (isinstance(kind, type) and issubclass(kind, Pass)) or getattr(kind, "name", None) != entry.name:
        return f"{who}: expected a Pass class of that name, got {shown(kind)}"
    found[entry.name] = kind
    found.packages[kind] = package
    return None

# SPDX-License-Identifier: Apache-2.0
"""All passes by name: memc's own, one line each, and those that other packages offer as `memc.passes` entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from memc.ir.errors import UsageError
from memc.passes.assign_addresses import AssignAddresses
from memc.passes.base import Pass
from memc.passes.build_gradient import BuildGradient
from memc.passes.canonicalize import Canonicalize
from memc.passes.decompose import Decompose
from memc.passes.delay_updates import DelayUpdates
from memc.passes.donate import Donate
from memc.passes.find_last import FindLast
from memc.passes.fuse import Fuse
from memc.passes.fuse_library import FuseLibrary
from memc.passes.in_place import InPlace
from memc.passes.join_kernels import JoinKernels
from memc.passes.join_products import JoinProducts
from memc.passes.join_rows import JoinRows
from memc.passes.join_updates import JoinUpdates
from memc.passes.materialize_returns import MaterializeReturns
from memc.passes.mirror import Mirror
from memc.passes.mixed_precision import MixedPrecision
from memc.passes.narrow_products import NarrowProducts
from memc.passes.pack_weights import PackWeights
from memc.passes.recognize import Recognize
from memc.passes.recognize_attention import RecognizeAttention
from memc.passes.rematerialize import Rematerialize
from memc.passes.reorder import Reorder
from memc.passes.select_kernels import SelectKernels
from memc.passes.select_workspace import SelectWorkspace
from memc.passes.set_precision import SetPrecision
from memc.passes.share import Share

PASSES: tuple[type[Pass], ...] = (
    AssignAddresses,
    BuildGradient,
    Canonicalize,
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
    Rematerialize,
    Reorder,
    SelectKernels,
    SelectWorkspace,
    SetPrecision,
    Share,
)


@cache
def known_passes() -> dict[str, type[Pass]]:
    """Every pass by name. Raises UsageError if a third party's pass cannot be loaded or takes a name in use."""
    found: dict[str, type[Pass]] = {kind.name: kind for kind in PASSES}
    for entry in entry_points(group="memc.passes"):
        try:
            kind = entry.load()
        except Exception as error:
            raise UsageError(f"pass {entry.name!r} from {entry.value!r} does not load: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, Pass)) or kind.name != entry.name:
            raise UsageError(f"entry point {entry.name!r} of group memc.passes: expected a Pass class of that name")
        if entry.name in found:
            raise UsageError(f"pass {entry.name!r} from {entry.value!r}: the name is taken by {found[entry.name]}")
        found[entry.name] = kind
    return found

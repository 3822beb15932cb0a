# SPDX-License-Identifier: Apache-2.0
"""What compiled code needs of who runs it: sizes, inputs, outputs and weights. plan.json has it for readers, and the code itself
(its function `interface`) for `memc.load`, which runs no code by a plan that describes another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from memc.ir.core import Function, Role, Value
from memc.ir.data_dependent_extents import Extent
from memc.ir.liveness import updates_state
from memc.ir.spaces import IO
from memc.runtime.artifact.storages import Storage, devices_of
from memc.runtime.artifact.weight_slab import SlabEntry, slab_entries
from memc.runtime.code_target import CodeTarget


def interface_of(
    function: Function,
    target: CodeTarget,
    *,
    storages: Sequence[Storage],
    symbols: Iterable[str],
    cpu_flags: Iterable[str],
) -> dict[str, Any]:
    """Plain data for JSON (docs/artifact.md); sizes in bytes."""
    entries = slab_entries(function, target.alignment)
    names = function.result_names or [f"output.{n}" for n in range(len(function.returns))]
    kept = [n for n, value in enumerate(function.returns) if not updates_state(value)]
    outputs = [(names[n], function.returns[n]) for n in kept]
    return {
        "target": {
            "kind": target.kind,
            "arch": target.arch,
            "cpu": target.cpu,
            "cpu_flags": list(cpu_flags),
        },
        "devices": [str(device) for device in devices_of(storages)],
        "spaces": [storage.to_dict() for storage in storages],
        "inputs": [tensor(p.name, p, IO) for p in function.params_of(Role.INPUT)],
        "outputs": [tensor(name, value, IO) for name, value in outputs],
        "extents": [extent(each, kept) for each in function.extents],
        "weights": [{**tensor(s.name, s.value, s.space), "offset": s.offset, "layout": layout(s)} for s in entries],
        "states": [s.name for s in entries if s.value.role is Role.STATE],
        "library_functions": list(symbols),
    }


def extent(item: Extent, kept: Sequence[int]) -> dict[str, Any]:
    """A count of plan.json. `kept`: the results that are outputs, by position."""
    cuts = [[kept.index(result), axis] for result, axis in item.cuts]
    return {"count": kept.index(item.count), "most": item.most, "cuts": cuts}


def layout(entry: SlabEntry) -> str:
    """How the elements of a weight are ordered."""
    return "row-major" if entry.packing is None else str(entry.packing)


def tensor(name: str, value: Value, space: str) -> dict[str, Any]:
    """A tensor of plan.json, which lies in a space."""
    return {"name": name, "dtype": value.type.dtype.value, "shape": list(value.type.shape), "space": space}

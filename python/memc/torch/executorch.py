# SPDX-License-Identifier: Apache-2.0
"""memc's placement as a memory-planning algorithm of ExecuTorch.

>>> from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite     # doctest: +SKIP
>>> suite = MemoryPlanningAlgorithmSuite([memc.torch.executorch.memory_planning])  # doctest: +SKIP
>>> MemoryPlanningPass(memory_planning_algo=suite)                               # doctest: +SKIP
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from memc.planning import Plan, Tensor, plan

FIRST = 1
"""ExecuTorch's number of the memory of specs that name none."""


def memory_planning(
    alignment: int, specs: Iterable[Any], graph_module: Any, graph_signature: Any, extra_padding: int = 0
) -> Any:
    """ExecuTorch's `MemoryAlgoResult` with each spec at its place in memc's plan: a memory-planning algorithm, as its suite calls it.

    Each memory (`mem_id`) is planned on its own. Specs that lie in another one's storage (`storage_base`) lie there. Raises
    MemcError for specs that memc cannot plan.
    """
    theirs = import_module("executorch.exir.memory_planning")

    groups: dict[int, list[Any]] = defaultdict(list)
    for spec in specs:
        spec.realign(alignment)
        groups[_memory(spec)].append(spec)
    taken = list(getattr(graph_module, "input_mem_buffer_sizes", None) or ())
    sizes = [0] * (max([*groups, FIRST]) + 1)
    found = {}
    for memory, members in groups.items():
        start = taken[memory] if memory < len(taken) else 0
        start += -start % alignment
        members.sort(key=lambda s: (s.lifetime[0], s.lifetime[1], s.allocated_memory))
        planned = _planned(members, alignment)
        for number, (spec, offset) in enumerate(zip(members, planned.offsets)):
            found[spec] = theirs.SpecAllocResult(memory, number, start + offset)
        sizes[memory] = start + planned.peak + extra_padding
    return theirs.MemoryAlgoResult(found, sizes)


def _memory(spec: Any) -> int:
    """The memory in which a spec lies: that of the storage it is in."""
    number = _base(spec)[0].mem_id
    return FIRST if number is None else int(number)


def _base(spec: Any) -> tuple[Any, int]:
    """The spec in whose storage another lies at last, and how far into it; itself for one with its own storage."""
    at = 0
    while getattr(spec, "storage_base", None) is not None:
        at += int(spec.storage_base_offset)
        spec = spec.storage_base
    return spec, at


def _planned(members: list[Any], alignment: int) -> Plan:
    names = {id(spec): str(number) for number, spec in enumerate(members)}
    tensors = []
    for spec in members:
        base, at = _base(spec)
        first, last = spec.lifetime
        alias = None if base is spec else names[id(base)]
        tensors.append(Tensor(names[id(spec)], first, last + 1, spec.allocated_memory, alias=alias, alias_offset=at))
    return plan(tensors, alignment=alignment)

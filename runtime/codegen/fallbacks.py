# SPDX-License-Identifier: Apache-2.0
"""What takes the place of kernels that do not compile: a plainer form of them, or kernels of fewer ops.

TVM may refuse a kernel when it is scheduled or lowered, LLVM's verifier or nvcc when all kernels are built. A kernel of ops
that were joined gives way to kernels of each, any other to its plainest schedule. Where that does not compile either,
`CodegenError` names the ops; fused ones may then be planned again one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memc.ir.core import FUSED, Op
from memc.ir.errors import CodegenError
from memc.ir.ops.shared.op_def import inner_ops

_log = logging.getLogger("memc")

NAMED = 3
"""Ops that a message names."""


@dataclass
class Retreats:
    """Kernels, by their keys, that are not compiled in their usual form."""

    plain: set[Any] = field(default_factory=set)
    """Kernels that have the plainest schedule."""
    apart: set[Any] = field(default_factory=set)
    """Kernels of several ops that are not compiled: each op has a kernel of its own."""
    failed: dict[Any, tuple[Sequence[Op], str]] = field(default_factory=dict)
    """Kernels that do not compile in any form: the ops that need them, and why."""
    notes: dict[Any, str] = field(default_factory=dict)
    """What was done about each of `plain` and `apart`."""

    def make_plain(self, key: Any, ops: Sequence[Op], error: Exception) -> None:
        """The kernel of `ops` did not compile with its schedule; where the plain one was tried, it failed for good."""
        if key in self.plain:
            self.failed[key] = (ops, reason(error))
            return
        self.plain.add(key)
        why = f"the kernel's schedule does not compile ({reason(error)})"
        self.notes[key] = f"{names(ops)}: {why}; using a plain, slower one"

    def take_apart(self, key: Any, ops: Sequence[Op], error: Exception) -> None:
        """The kernel of `ops`, which were joined, did not compile."""
        self.apart.add(key)
        why = f"their joint kernel does not compile ({reason(error)})"
        self.notes[key] = f"{names(ops)}: {why}; using one for each op"

    def warn(self) -> None:
        """Say what was done."""
        for note in self.notes.values():
            _log.warning("%s", note)

    def check(self) -> None:
        """Raise CodegenError if kernels failed for good."""
        if not self.failed:
            return
        groups: list[str] = []
        for ops, why in self.failed.values():
            if any(op.name != FUSED for op in ops):
                raise CodegenError(f"{names(ops)}: no kernel compiles for it: {why}; please report this with the model")
            groups += [op.result.name for op in ops]
        ops, why = next(iter(self.failed.values()))
        raise CodegenError(f"{names(ops)}: no kernel compiles for the fused ops: {why}", tuple(groups))


def names(ops: Sequence[Op]) -> str:
    """The ops in words, with where in the model they are from."""
    told = [_name(op) for op in ops[:NAMED]]
    return ", ".join(told) + (f" and {len(ops) - NAMED} more" if len(ops) > NAMED else "")


def _name(op: Op) -> str:
    told = (
        op.name if op.region is None else " + ".join(inner.name for inner in inner_ops(op) if inner.name != "constant")
    )
    return f"{told} ({op.location})" if op.location else f"{told} (%{op.results[0].name})"


def reason(error: Exception) -> str:
    """One line of what TVM, LLVM or nvcc says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = " ".join(lines[:2]) if lines else type(error).__name__
    return told if len(told) <= 160 else told[:157] + "..."


def find_broken(
    names: Sequence[str], error: Exception, compiles: Callable[[Sequence[str]], object]
) -> dict[str, Exception]:
    """Which of several kernels, that do not compile together because of `error`, do not compile alone, and why.

    `compiles` raises for those that it is given. Few are broken: halves that compile are left at once.
    """
    if len(names) == 1:
        return {names[0]: error}
    found: dict[str, Exception] = {}
    middle = len(names) // 2
    for part in (names[:middle], names[middle:]):
        try:
            compiles(part)
        except Exception as partial:
            found.update(find_broken(part, partial, compiles))
    return found

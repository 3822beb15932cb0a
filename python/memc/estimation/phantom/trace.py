# SPDX-License-Identifier: Apache-2.0
"""What the process of a script wrote: events of PyTorch's allocator, with the op, module, phase and step of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.estimation.events import Origin
from memc.estimation.recording import Action

COLUMNS = ("action", "address", "bytes", "stream", "pool", "op", "module", "phase", "step", "call")
"""Of a row, each 8 bytes. `call` numbers the outermost op at work; what it allocates and frees is temporary."""

ACTIONS = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    *("snapshot", "oom"),
)
MARK = 100
"""Rows from this action on say what the block at an address holds: weights, gradients, states of an optimizer, or what the host wrote."""
MARKS = ("weights", "gradients", "optimizer")
FROM_HOST = MARK + len(MARKS)
PHASES = ("forward", "backward", "optimizer")

_INPUTS = (
    "aten::rand",
    "aten::zeros",
    "aten::ones",
    "aten::full",
    "aten::arange",
    "aten::tensor",
    "aten::clone",
)
_PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::linear",
    "aten::matmul",
    "aten::addmv",
    "aten::dot",
)
_VALUES = ("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense")
_COPIES = ("aten::copy_", "aten::to", "aten::_to_copy", "aten::cpu", "a copy")
_LIBRARY = ("aten::cudnn_", "aten::_cudnn_", "aten::convolution_backward")


@dataclass(frozen=True)
class Read:
    """Bytes that the host read of the device: the ops at work, the outermost first, and how often. No bytes: a plan of cuDNN's for tensor
    cores."""

    ops: tuple[str, ...]
    nbytes: int
    count: int
    whole: bool | None = None
    """Whether they are whole numbers or truth values; None where an op does not say."""


@dataclass
class Trace:
    """The rows and names of one run."""

    rows: npt.NDArray[np.int64]
    ops: list[str] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    modules: Sequence[str] = ()

    def actions(self) -> list[Action]:
        """The events, each request with its origin."""
        categories = _categories(self)
        known: dict[tuple[int, ...], Origin] = {}
        found = []
        for at, row in enumerate(self.rows.tolist()):
            action, address, nbytes, stream, pool, op, module, phase, step, _ = row
            if action >= MARK:
                continue
            origin = None
            if action in (0, 8):
                key = (op, module, phase, step, categories.get(at, -1))
                if key not in known:
                    known[key] = self._origin(op, module, phase, step, categories.get(at, -1))
                origin = known[key]
            found.append(Action(ACTIONS[action], address, nbytes, stream, pool, origin))
        return found

    def _origin(self, op: int, module: int, phase: int, step: int, category: int) -> Origin:
        name = self.modules[module] if 0 <= module < len(self.modules) else ""
        return Origin(self.ops[op], name, PHASES[phase], step + 1, _CATEGORIES[category] if category >= 0 else "")


_CATEGORIES = (*MARKS, "inputs", "activations", "temporaries", "workspaces")
_TEMPORARY, _WORKSPACE = 5, 6


def read_trace(rows: Path, names: Path, modules: Sequence[str]) -> Trace:
    """Raises OSError or ValueError for files that are not there, or damaged."""
    found = Trace(np.fromfile(rows, np.int64).reshape(-1, len(COLUMNS)), modules=modules)
    for line in names.read_text(encoding="utf-8", errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "op":
            found.ops.append(rest)
        elif kind == "read":
            op, nbytes, count, numbers = map(int, rest.split())
            whole = None if numbers == 0 else numbers == 2
            found.reads.append(Read(tuple(found.ops[op].split(" > ")), nbytes, count, whole))
    return found


class _Live:
    """Rows that allocated what is live, by address."""

    def __init__(self) -> None:
        self.row_of: dict[int, int] = {}
        self.nbytes: dict[int, int] = {}
        self._sorted: list[int] | None = None

    def add(self, address: int, row: int, nbytes: int) -> None:
        self.row_of[address] = row
        self.nbytes[address] = nbytes
        self._sorted = None

    def remove(self, address: int) -> int | None:
        self._sorted = None
        self.nbytes.pop(address, None)
        return self.row_of.pop(address, None)

    def holding(self, address: int) -> int | None:
        """The row of the block that an address lies in."""
        if address in self.row_of:
            return self.row_of[address]
        if self._sorted is None:
            self._sorted = sorted(self.row_of)
        at = bisect_right(self._sorted, address) - 1
        if at < 0:
            return None
        start = self._sorted[at]
        return self.row_of[start] if address < start + self.nbytes[start] else None


def _categories(trace: Trace) -> Mapping[int, int]:
    """What each request's block holds, by row."""
    live = _Live()
    found: dict[int, int] = {}
    rows: list[list[int]] = trace.rows.tolist()
    never_freed = set()
    from_host = set()
    for at, (action, address, nbytes, _, _, _, _, _, _, call) in enumerate(rows):
        if action == 0:
            live.add(address, at, nbytes)
            never_freed.add(at)
        elif action == 1:
            made = live.remove(address)
            if made is not None:
                never_freed.discard(made)
                if made not in found and call == rows[made][9] != 0:
                    library = trace.ops[rows[made][5]].startswith(_LIBRARY)
                    found[made] = _WORKSPACE if library else _TEMPORARY
        elif action >= MARK:
            made = live.holding(address)
            if made is not None and action == FROM_HOST:
                from_host.add(made)
            elif made is not None:
                found.setdefault(made, action - MARK)
    for at, row in enumerate(rows):
        if row[0] == 0 and at not in found:
            guess = "inputs" if at in from_host else _guess(trace.ops[row[5]], row[6], row[7], at in never_freed)
            found[at] = _CATEGORIES.index(guess)
    return found


def _guess(op: str, module: int, phase: int, kept: bool) -> str:
    """What a block holds that outlives its op and that nobody marked."""
    if kept and op.startswith(_PRODUCTS):
        return "workspaces"  # Of cuBLAS, which PyTorch keeps for each handle.
    if phase:
        return "temporaries"
    if module < 0 and op.startswith(_INPUTS):
        return "inputs"
    return "activations"


def reads_truth(reads: Iterable[Read]) -> bool:
    """Whether the job read a truth value, by which it may decide."""
    values = (*_VALUES, *_COPIES)
    return any(
        op.startswith("aten::is_nonzero") or read.nbytes == 1 and op.startswith(values)
        for read in reads
        for op in read.ops
    )


def data_dependences(reads: Iterable[Read], nonzero: float = 0.0) -> list[str]:
    """Notes on what the job did with bytes that no kernel has computed. `nonzero`: the share of elements that `nonzero` found.

    An op that reads the device itself makes results of sizes that depend on data. By whole numbers and truth values a script may
    decide, which it hardly does by a loss.
    """
    sizes: dict[tuple[str, bool], int] = {}
    values: dict[str, int] = {}
    for read in reads:
        ops = [op for op in read.ops if op.startswith(("aten::", "torchvision::"))] or ["a copy"]
        whole = read.nbytes in (1, 8) if read.whole is None and ops[0] in _VALUES else read.whole
        if not read.nbytes:
            continue
        if ops[0] in _VALUES or ops[0].startswith(_COPIES):
            if whole or ops[0] == "aten::is_nonzero":
                values[ops[0]] = values.get(ops[0], 0) + read.count
        else:
            searched = (ops[0], "aten::nonzero" in ops)
            sizes[searched] = sizes.get(searched, 0) + read.count
    share = f"of which {nonzero:.3g} are taken not to be zero" if nonzero else "which is zero here"
    notes = [
        f"{op} ({_times(count)}): the size of its result depends on data, {f'{share} (--assume nonzero=)' if searches else 'which is zero here'}"
        for (op, searches), count in sizes.items()
    ]
    return notes + [
        f"{op} ({_times(count)}): whole numbers or truth values read from the device are zero here"
        for op, count in values.items()
    ]


def assumptions(reads: Sequence[Read], ops: Iterable[str] = (), nonzero: float = 0.0) -> list[str]:
    """Notes on what depends on data, and on figures that cuDNN does not tell without a device."""
    convolutions = sum(read.count for read in reads if not read.nbytes and any("convolution" in op for op in read.ops))
    notes = data_dependences(reads, nonzero)
    if convolutions:
        notes.append(
            f"workspaces of convolutions on tensor cores ({_times(convolutions)}): on a GPU cuDNN was seen to choose others for some"
        )
    if any(op.startswith("aten::_cudnn_rnn") for op in ops):
        notes.append("workspaces of recurrent networks: as cuDNN gave them on a GPU for shapes of other sizes")
    return notes


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def peaks(stats: Mapping[str, Any]) -> dict[str, int]:
    """What PyTorch counted, as recordings have it."""
    names = ("allocated", "requested", "reserved", "active", "inactive_split")
    return {name: int(stats[f"{name}_bytes.all.peak"]) for name in names if f"{name}_bytes.all.peak" in stats}

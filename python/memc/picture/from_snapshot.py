# SPDX-License-Identifier: Apache-2.0
"""The picture of a memory snapshot of PyTorch: the blocks of its allocator at the addresses that they had, one step for each event.

Addresses of a device reach over far more than its memory. What lies between the parts of it that were ever used is left out, so that
these follow one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memc.estimation.recording import Action
from memc.estimation.snapshots import History, read_history
from memc.ir.sizes import format_size

from .picture import BEFORE, BLOCKS, PictureSpace, PictureStep, PlacedTensor, PlanPicture

GRANULE = 512
"""Bytes that sizes of PyTorch's blocks are multiples of."""


@dataclass
class _Block:
    """A block while it is in use."""

    number: int
    action: Action
    lower: int
    before: bool


def picture_of_snapshot(path: str | Path, device: int | None = None) -> PlanPicture:
    """The picture of a snapshot's device, by default of the only one. Raises what `read_history` raises."""
    history = read_history(path, device)
    found = list(_blocks(history))
    parts = _Parts([(block.action.address, _size(block.action)) for block, _ in found])
    end = max(1, len(history.actions))
    tensors = [
        PlacedTensor(
            f"block {block.number}",
            ((block.lower, upper if upper is not None else end),),
            parts.offset(block.action.address),
            _size(block.action),
            role=BEFORE if block.before else BLOCKS,
            type=f"{block.action.nbytes:,} bytes asked for",
            decision="" if upper is not None else "never freed",
            reason="" if upper is not None else "is in use when the snapshot is written",
            place="" if block.action.origin is None else block.action.origin.op,
        )
        for block, upper in found
        if upper is None or upper > block.lower
    ]
    ops = tuple(PictureStep(action.name, _what(action), _place(action)) for action in history.actions)
    space = PictureSpace(f"device {history.device}", parts.nbytes)
    shown = PlanPicture(str(Path(path).name), "event", end, (space,), tensors, ops)
    live = int(shown.live_bytes().max(initial=0))
    space = PictureSpace(space.name, parts.nbytes, live)
    facts = (
        ("most in use", format_size(live)),
        ("addresses used", format_size(parts.nbytes)),
        ("events", f"{len(history.actions):,}"),
        ("settings", history.settings or "default"),
    )
    return PlanPicture(shown.title, "event", end, (space,), tensors, ops, facts=facts)


def _size(action: Action) -> int:
    return -(-max(action.nbytes, 1) // GRANULE) * GRANULE


def _what(action: Action) -> str:
    return f"{action.nbytes:,} bytes at {action.address:#x}" if action.address else ""


def _place(action: Action) -> str:
    return "" if action.origin is None else action.origin.op


def _blocks(history: History) -> Iterator[tuple[_Block, int | None]]:
    """Each block with the event that ends it, None for those that are in use to the end, in the order in which they end. A block that was
    given back stays in use until the streams that use it have passed."""
    live: dict[int, _Block] = {}
    number = 0
    for action in history.before:
        if action.name == "alloc":
            live[action.address] = _Block(number, action, 0, True)
            number += 1
    completes = {action.address for action in history.actions if action.name == "free_completed"}
    for at, action in enumerate(history.actions):
        if action.name == "alloc":
            if action.address in live:
                yield live.pop(action.address), at
            live[action.address] = _Block(number, action, at, False)
            number += 1
        elif action.name in ("free", "free_completed") or (
            action.name == "free_requested" and action.address not in completes
        ):
            if action.address in live:
                yield live.pop(action.address), at
    yield from ((block, None) for block in live.values())


class _Parts:
    """The parts of the addresses that blocks ever had, one after another."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.starts: list[int] = []
        ends: list[int] = []
        for start, size in sorted(ranges):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], start + size)
            else:
                self.starts.append(start)
                ends.append(start + size)
        self.bases: list[int] = []
        self.nbytes = 0
        for start, end in zip(self.starts, ends):
            self.bases.append(self.nbytes)
            self.nbytes += end - start

    def offset(self, address: int) -> int:
        """Where an address of a block lies among them."""
        at = bisect_right(self.starts, address) - 1
        return self.bases[at] + address - self.starts[at]

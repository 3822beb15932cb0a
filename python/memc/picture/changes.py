# SPDX-License-Identifier: Apache-2.0
"""What differs between two plans, tensor by tensor, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from memc.ir.sizes import format_size

from .picture import PlacedTensor, PlanPicture


@dataclass(frozen=True)
class Change:
    """A tensor that is not the same in both plans."""

    name: str
    before: PlacedTensor | None
    """None: it is new."""
    after: PlacedTensor | None
    """None: it is gone."""
    what: str
    """In words, such as `moved, decision kept to recomputed`."""

    @property
    def added_bytes(self) -> int:
        """By how many bytes it grew."""
        sizes = [0 if tensor is None else tensor.nbytes for tensor in (self.before, self.after)]
        return sizes[1] - sizes[0]


def changes(before: PlanPicture, after: PlanPicture) -> list[Change]:
    """The tensors that differ, the largest first. Tensors of one name and space are paired in the order in which they become live."""
    olds, news = _by_name(before), _by_name(after)
    found: list[Change] = []
    for key in dict.fromkeys((*olds, *news)):
        old, new = olds.get(key, []), news.get(key, [])
        for at in range(max(len(old), len(new))):
            pair = (old[at] if at < len(old) else None, new[at] if at < len(new) else None)
            what = _difference(before, after, *pair)
            if what:
                found.append(Change(key[1], *pair, what))
    return sorted(found, key=lambda change: (-_most_bytes(change), change.name))


def _by_name(picture: PlanPicture) -> dict[tuple[str, str], list[PlacedTensor]]:
    found: dict[tuple[str, str], list[PlacedTensor]] = defaultdict(list)
    for tensor in sorted(picture.tensors, key=lambda tensor: tensor.lower):
        found[picture.spaces[tensor.space].name, tensor.name].append(tensor)
    return found


def _most_bytes(change: Change) -> int:
    return max(tensor.nbytes for tensor in (change.before, change.after) if tensor is not None)


def _difference(old: PlanPicture, new: PlanPicture, before: PlacedTensor | None, after: PlacedTensor | None) -> str:
    """What differs between two tensors of one name, of an old and a new picture, in words; empty if nothing does."""
    if before is None or after is None:
        return "new" if before is None else "gone"
    parts: Sequence[str] = [
        "moved" if before.offset != after.offset else "",
        f"{format_size(before.nbytes)} to {format_size(after.nbytes)}" if before.nbytes != after.nbytes else "",
        _lives(old, new, before, after),
        f"{before.decision or 'nothing decided'} to {after.decision or 'nothing decided'}"
        if before.decision != after.decision
        else "",
        f"{before.role} to {after.role}" if before.role != after.role else "",
    ]
    return ", ".join(filter(None, parts))


def _lives(old: PlanPicture, new: PlanPicture, before: PlacedTensor, after: PlacedTensor) -> str:
    lives = [
        [(picture.moment(lower), picture.moment(upper)) for lower, upper in tensor.lives]
        for picture, tensor in ((old, before), (new, after))
    ]
    if lives[0] == lives[1]:
        return ""
    steps = old.steps_of(before), new.steps_of(after)
    if steps[0] == steps[1]:
        return "live at another time"
    return f"live for {steps[0]:,} to {steps[1]:,} steps"

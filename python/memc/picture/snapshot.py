# SPDX-License-Identifier: Apache-2.0
"""Pictures as memory snapshots of PyTorch: the pickle that `torch.cuda.memory._dump_snapshot` writes and https://pytorch.org/memory_viz
shows, made of lists, dicts, numbers and text alone. Each space is one segment; a step's frees come before what it writes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from memc.ir.sizes import align

from .picture import PictureSpace, PlacedTensor, PlanPicture

BASE = 0x7F00_0000_0000
"""Address of the first space."""

GAP = 2**21
"""Spaces begin at multiples of it, which PyTorch's segments do."""


def snapshot_of(picture: PlanPicture) -> bytes:
    """The pickle of a picture."""
    bases: list[int] = []
    at = BASE
    for space in picture.spaces:
        bases.append(at)
        at = align(at + max(space.nbytes, 1), GAP)
    segments = [_segment(space, base) for space, base in zip(picture.spaces, bases)]
    trace = [_entry("segment_alloc", base, space.nbytes, 0) for space, base in zip(picture.spaces, bases)]
    trace += _events(picture, bases)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": ""}
    data = {"segments": segments, "device_traces": [trace], "allocator_settings": settings, "external_annotations": []}
    return pickle.dumps(data, protocol=4)


def _segment(space: PictureSpace, base: int) -> dict[str, Any]:
    """A space as it is when the plan is over: without blocks in use."""
    block = {"address": base, "size": space.nbytes, "requested_size": 0, "state": "inactive", "frames": []}
    return {
        "device": 0,
        "address": base,
        "total_size": space.nbytes,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [block],
    }


def _entry(
    action: str, address: int, nbytes: int, time: int, frames: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": nbytes, "stream": 0, "time_us": time, "frames": frames or []}


def _events(picture: PlanPicture, bases: list[int]) -> Iterator[dict[str, Any]]:
    steps: list[tuple[int, int, int]] = []
    for number, tensor in enumerate(picture.tensors):
        if tensor.nbytes:
            for lower, upper in tensor.lives:
                steps += [(lower, 1, number), (upper, 0, number)]
    for step, begins, number in sorted(steps):
        tensor = picture.tensors[number]
        address = bases[tensor.space] + tensor.offset
        time = _microseconds(picture, step)
        if begins:
            yield _entry("alloc", address, tensor.nbytes, time, _frames(picture, tensor))
        else:
            yield _entry("free_requested", address, tensor.nbytes, time)
            yield _entry("free_completed", address, tensor.nbytes, time)


def _microseconds(picture: PlanPicture, step: int) -> int:
    return int(picture.seconds[step] * 1e6) if step < len(picture.seconds) else picture.moment(step)


def _frames(picture: PlanPicture, tensor: PlacedTensor) -> list[dict[str, Any]]:
    """A call stack that names the tensor, its op, and where that comes from."""
    op = picture.ops[tensor.lower].name if tensor.lower < len(picture.ops) else tensor.role
    _, _, line = tensor.place.rpartition(" at ")
    file, colon, number = line.rpartition(":")
    placed = colon and number.isdigit()
    return [
        {"name": tensor.name, "filename": op, "line": 0},
        {"name": tensor.role, "filename": file if placed else tensor.place, "line": int(number) if placed else 0},
    ]

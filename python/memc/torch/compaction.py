# SPDX-License-Identifier: Apache-2.0
"""Moves live tensors out of segments of PyTorch's allocator that they keep from going back to the device."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .door import in_arena, reserved, swap_storages

LEAST = 2**21
"""Unused bytes for which tensors are moved."""

SMALL = 2**20
"""Bytes up to which PyTorch's allocator puts blocks into segments of 2 MiB."""

EXACT = 10 * 2**20
"""Bytes from which segments are as large as the request."""

_pools: dict[int, list[torch.cuda.MemPool]] = {}
"""Those of a device, while tensors are moved."""

_made: set[tuple[int, int]] = set()
"""Pools that hold what was moved."""


@dataclass
class _Segment:
    """Of which a part is unused."""

    address: int
    nbytes: int
    blocks: dict[int, torch.UntypedStorage | None] = field(default_factory=dict)
    """Those in use, by address, with what is known to lie there."""
    shared: bool = False
    """Two storages lie in one block: moving one would part them."""

    used: int = 0

    @property
    def unused(self) -> int:
        return self.nbytes - self.used

    @property
    def movable(self) -> bool:
        return not self.shared and None not in self.blocks.values()


def compact(device: int, most: int | None = None) -> int:
    """Copy tensors that lie in partly unused segments beside each other. Returns the bytes of memory given back to the device.

    A segment is left if something in it is not seen as a tensor of Python's, as it would stay anyway; cuBLAS's workspaces are made anew.
    `most`: bytes that may be reserved
    meanwhile, for which segments are vacated in turns; None for any.
    """
    before, _ = reserved(device)
    torch.cuda.synchronize(device)
    devices = range(torch.cuda.device_count())
    in_use = [reserved(each)[1] for each in devices]
    torch._C._cuda_clearCublasWorkspaces()
    without = [each for each in devices if reserved(each)[1] < in_use[each]]
    torch.cuda.empty_cache()
    try:
        _vacate(device, most)
    finally:
        for each in without:
            _multiply(each)
    after, _ = reserved(device)
    return before - after


def _vacate(device: int, most: int | None) -> None:
    segments = _partly_unused(device)
    gradients = _find_storages(segments, device)
    movable = [segment for segment in segments if segment.movable]
    if sum(segment.unused for segment in movable) < LEAST:
        return
    movable.sort(key=lambda segment: segment.unused)  # The emptiest are vacated first, which makes room for others.
    pools = _pools_of(device)
    while movable:
        turn = [movable.pop()]
        now, _ = reserved(device)
        for each in reversed(list(movable)):
            if most is None or now + sum(segment.used for segment in [*turn, each]) <= most:
                movable.remove(each)
                turn.append(each)
        storages = [storage for segment in turn for storage in segment.blocks.values() if storage is not None]
        parts = [[each for each in storages if (each._cdata in gradients) == of] for of in (False, True)]
        if sum(segment.nbytes for segment in turn) <= sum(map(_large, parts)):
            continue
        for segment in turn:
            segment.blocks.clear()
        for part, pool in zip(parts, reversed(pools)):
            _copy(part, pool, device)
        del storages, parts, part
        torch.cuda.empty_cache()


def _large(storages: list[torch.UntypedStorage]) -> int:
    """Bytes of a segment that holds the large ones: at least so many that it is not made larger than asked for."""
    large = sum(-(-storage.nbytes() // 512) * 512 for storage in storages if storage.nbytes() > SMALL)
    return max(large, EXACT) if large else 0


def _multiply(device: int) -> None:
    """Once forward and backward, so that cuBLAS and cuBLASLt have their workspaces again, for both threads, and no step asks for them."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cuda", enabled=False):
        one = torch.ones(16, 16, device=torch.device("cuda", device), requires_grad=True)
        torch.nn.functional.linear(one @ one, one, one[0]).sum().backward()


def _pools_of(device: int) -> list[torch.cuda.MemPool]:
    """For gradients, and for all else. Each ends with its last block, once `end_pools` was called."""
    if device not in _pools:
        with torch.cuda.device(device):
            _pools[device] = [torch.cuda.MemPool() for _ in range(2)]
        _made.update(pool.id for pool in _pools[device])
    return _pools[device]


def end_pools(device: int) -> None:
    """Nothing more is moved for now: free memory among what was moved can go back to the device."""
    _pools.pop(device, None)


def has_private_pools() -> bool:
    """Whether there is memory of private pools, as captured graphs have it, but for what was moved here."""
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    return bool(pools - {(0, 0)} - _made)


def _partly_unused(device: int) -> list[_Segment]:
    """Segments of the common pools that have both blocks in use and others, but for arenas, by address."""
    found = []
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] != device or tuple(segment["segment_pool_id"]) != (0, 0) or segment["is_expandable"]:
            continue
        used = [block["address"] for block in segment["blocks"] if block["state"] != "inactive"]
        if any(in_arena(device, block["address"]) for block in segment["blocks"]):
            continue
        if used and segment["active_size"] < segment["total_size"]:
            found.append(
                _Segment(segment["address"], segment["total_size"], dict.fromkeys(used), used=segment["active_size"])
            )
    return sorted(found, key=lambda segment: segment.address)


def _tensors(device: int) -> Iterator[tuple[torch.Tensor, bool]]:
    """All of Python's on the device, and whether they are gradients, which come and go together."""
    place = torch.device("cuda", device)
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor):
            for tensor in (each.grad if each.is_leaf else None, each):
                if tensor is not None and tensor.layout == torch.strided and tensor.device == place:
                    yield tensor, tensor is not each


def _find_storages(segments: list[_Segment], device: int) -> set[int]:
    """Puts them into their segments. Returns which ones hold gradients, by the addresses of their C++ objects."""
    gradients: set[int] = set()
    starts = [segment.address for segment in segments]
    seen: set[int] = set()
    for tensor, is_gradient in _tensors(device):
        storage = _storage(tensor)
        if storage is None:
            continue
        if is_gradient:
            gradients.add(storage._cdata)
        if storage._cdata in seen:
            continue
        seen.add(storage._cdata)
        address = storage.data_ptr()
        at = bisect_right(starts, address) - 1
        if at < 0 or address >= segments[at].address + segments[at].nbytes:
            continue
        segment = segments[at]
        if segment.blocks.get(address, storage) is not None:  # Within a block, or a second one at its start.
            segment.shared = True
        else:
            segment.blocks[address] = storage
    return gradients


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """None for what has no bytes of its own, such as fake tensors."""
    try:
        return tensor.untyped_storage() if tensor.untyped_storage().data_ptr() else None
    except (NotImplementedError, RuntimeError):
        return None


def _copy(storages: list[torch.UntypedStorage], pool: torch.cuda.MemPool, device: int) -> None:
    """Into one new segment of the pool for all large blocks, as they are cut from its free bytes."""
    storages.sort(key=lambda storage: storage.nbytes(), reverse=True)
    large = _large(storages)
    if 2 * large <= sum(
        each["total_size"] - each["active_size"] for each in pool.snapshot() if each["total_size"] > 2 * SMALL
    ):
        large = 0  # There is room from an earlier turn.
    with torch.no_grad(), torch.cuda.device(device), torch.cuda.use_mem_pool(pool):
        torch.UntypedStorage(large, device=torch.device("cuda", device))
        places: list[Any] = [torch.UntypedStorage(each.nbytes(), device=each.device) for each in storages]
    for place, storage in zip(places, storages):
        place.copy_(storage)
    torch.cuda.synchronize(device)
    for place, storage in zip(places, storages):
        swap_storages(storage, place)

# SPDX-License-Identifier: Apache-2.0
"""The storages of a loaded artifact's memory spaces: allocated, filled with weights, and as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memc.ir.errors import DeviceMemoryError, InvalidError
from memc.ir.machine import memory_bytes
from memc.ir.sizes import format_size
from memc.ir.spaces import HOST
from memc.runtime.artifact import safetensors
from memc.runtime.artifact.manifest import WEIGHTS, Manifest, StoredWeight
from memc.runtime.artifact.storages import Storage
from memc.runtime.execute.load_code import Loaded
from memc.runtime.execute.tensors import array_over

Array = npt.NDArray[Any]

PIN = "cannot pin"
"""What messages of memory that cannot be pinned begin with."""


def allocate(loaded: Loaded, virtual_machine: Any, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A storage for each space that `virtual_machine` allocates, by name, in the order in which runs are given them: of those
    in `shared` the storage there, of others a new one, with its weights."""
    _require_memory(loaded.manifest)
    found: dict[str, Any] = {}
    filled = {weight.spec.space for weight in loaded.manifest.weights if weight.spec.nbytes}
    for space in loaded.manifest.spaces:
        if space.name in shared:
            found[space.name] = shared[space.name]
        elif space.is_allocated:
            found[space.name] = allocated(loaded, virtual_machine, space)
            if space.name in filled:
                upload(loaded.manifest, space, virtual_machine[space.viewer](found[space.name]))
    return found


def _require_memory(manifest: Manifest) -> None:
    """Raise DeviceMemoryError for copies on the host that its memory cannot hold: on the CPU they would be promised, and the process
    ended when they are written."""
    there = memory_bytes()
    for space in manifest.spaces:
        if space.name == HOST and space.device.kind == "cpu" and there is not None and space.bytes > there:
            raise DeviceMemoryError(
                f"{manifest.path}: loading: the space {HOST} takes {space.bytes} bytes ({format_size(space.bytes)}), this machine "
                f"has {there} ({format_size(there)}) of memory; compile with a smaller --host-budget"
            )


def allocated(loaded: Loaded, virtual_machine: Any, space: Storage) -> Any:
    """A new storage of a space. Raises DeviceMemoryError where the host's memory cannot be pinned."""
    if space.is_pinned:
        return pinned(loaded, virtual_machine, space)
    if space.device.kind == "cuda" and loaded.has_native:
        import tvm_ffi

        # TVM would say on stderr what does not fit, and leave its error to the next user of CUDA.
        tvm_ffi.get_global_func("memc.cuda.require")(space.device.index, max(space.bytes, 1))
    return virtual_machine[space.maker]()


def pinned(loaded: Loaded, virtual_machine: Any, space: Storage) -> Any:
    """A new slab."""
    try:
        return virtual_machine[space.maker]()
    except RuntimeError as error:
        said = str(error).strip().splitlines()[-1]
        if PIN not in said:
            raise
        why = said[said.index(PIN) :]
        path = loaded.manifest.path
        raise DeviceMemoryError(
            f"{path}: loading: space {space.name}: {why}; free memory, or compile with a smaller --host-budget"
        ) from None


def copied(loaded: Loaded, virtual_machine: Any, space: Storage, storage: Any) -> Any:
    """A new storage of a space of weights, with what another has."""
    found = allocated(loaded, virtual_machine, space)
    virtual_machine[space.viewer](found).copyfrom(virtual_machine[space.viewer](storage))
    return found


def content_of(virtual_machine: Any, space: Storage, storage: Any, weights: Iterable[StoredWeight]) -> Array:
    """The bytes of a space, among them those of `weights`: themselves on the CPU, a copy of a device's, in which other bytes of the arena
    are not those there."""
    tensor = virtual_machine[space.viewer](storage)
    if space.device.kind != "cuda":
        return array_over(tensor, "u8")
    import tvm

    if not is_arena(space):
        return np.array(tensor.copyto(tvm.cpu(0)).numpy())
    found = np.empty(space.bytes, np.uint8)
    for weight in weights:
        part = part_of(tensor, weight).copyto(tvm.cpu(0)).numpy()
        found[weight.offset : weight.offset + weight.spec.nbytes] = part
    return found


def write_back(
    virtual_machine: Any, space: Storage, storage: Any, weights: Iterable[StoredWeight], content: Array
) -> None:
    """Write what `content_of` gave, and `weights` of which have changed since, to a device."""
    tensor = virtual_machine[space.viewer](storage)
    if not is_arena(space):
        tensor.copyfrom(content)
        return
    for weight in weights:
        part_of(tensor, weight).copyfrom(content[weight.offset : weight.offset + weight.spec.nbytes])


def is_arena(space: Storage) -> bool:
    """Whether states lie in a space among values, which may take many times their bytes."""
    return space.holds == "values" and not space.is_pinned


def part_of(tensor: Any, weight: StoredWeight) -> Any:
    """The bytes of a weight, of a space's as a tensor."""
    return tensor._create_view((weight.spec.nbytes,), "uint8", weight.offset)


def upload(manifest: Manifest, space: Storage, slab: Any) -> None:
    """Fill a space of weights, given as a tensor of bytes: on the CPU straight from the file, on a device through one host
    buffer, of the arena one by one. Raises InvalidError for a damaged file."""
    path = manifest.path / WEIGHTS
    try:
        stored, types = safetensors.read(path, checksum=True), safetensors.types(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidError(f"{path}: damaged weights ({error}); compile again") from None
    on_host = space.device.kind != "cuda"
    apart = is_arena(space) and not on_host
    staged = array_over(slab, "u8") if on_host else np.zeros(0 if apart else space.bytes, np.uint8)
    for weight in (w for w in manifest.weights if w.spec.space == space.name):
        data = stored.get(weight.spec.name)
        if data is None or data.size != weight.spec.nbytes:
            size = "nothing" if data is None else f"{data.size} bytes"
            raise InvalidError(
                f"{path}: expected {weight.spec.nbytes} bytes of {weight.spec}, found {size}; compile again"
            )
        dtype, shape = types[weight.spec.name]
        if dtype != safetensors.CODES[weight.spec.dtype] or shape != weight.stored_shape:
            got = f"{dtype.lower()}[{','.join(map(str, shape))}]"
            raise InvalidError(f"{path}: expected {weight.spec}, found {got}; compile again")
        if not apart:
            staged[weight.offset : weight.offset + data.size] = data
        elif data.size:
            part_of(slab, weight).copyfrom(np.ascontiguousarray(data))
    if not on_host and not apart:
        slab.copyfrom(staged)

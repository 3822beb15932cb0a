# SPDX-License-Identifier: Apache-2.0
"""The process as one rank of a distributed job, whose other ranks are not there. Collectives do nothing, and all agree."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

from .replaced import line_of
from .watch import Watch

LOCAL = 8
"""GPUs of a machine, at most."""


def join(torch: Any, watch: Watch, world_size: int, rank: int) -> None:
    """Be that rank, whatever the script, its environment or a launcher say; without a job of several, see that none is asked for."""
    local = min(world_size, LOCAL)
    if world_size > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank % local, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": local}
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    _replace_spawn(torch, watch, world_size, rank)
    if not torch.distributed.is_available():
        return
    distributed: Any = importlib.import_module("torch.distributed")
    groups: Any = importlib.import_module("torch.distributed.distributed_c10d")
    begin = groups.init_process_group
    signature = inspect.signature(begin)
    store = _store_of_nobody(distributed)

    def joined(*arguments: Any, **keywords: Any) -> Any:
        given = signature.bind(*arguments, **keywords).arguments
        asked = given.get("world_size", -1)
        asked = int(os.environ.get("WORLD_SIZE", "1")) if asked is None or asked < 1 else asked
        if world_size == 1 and asked > 1:
            _refuse(watch, asked)
        given.update({"store": store, "rank": rank, "world_size": world_size, "init_method": None})
        given["backend"] = _backend(given.get("backend"))
        return begin(**given)

    _replace(groups, "init_process_group", joined)
    _agree(groups)


def _replace(groups: Any, name: str, made: Any) -> None:
    """Wherever modules of PyTorch's have taken a function to themselves."""
    old = getattr(groups, name)
    for place, module in list(sys.modules.items()):
        if place.startswith("torch.distributed") and getattr(module, name, None) is old:
            setattr(module, name, made)


def _refuse(watch: Watch, ranks: int) -> None:
    watch.finish({"kind": "ranks", "message": "", "ranks": ranks, "line": line_of(watch)})


def _backend(asked: Any) -> str:
    """Collectives on the device are NCCL's, which the phantom device stands for; none of others' wait for ranks that are not there."""
    importlib.import_module("torch.testing._internal.distributed.fake_pg")
    text = str(asked or "").lower()
    return "nccl" if text in ("nccl", "cuda:nccl") else "cpu:fake,cuda:nccl"


def _store_of_nobody(distributed: Any) -> Any:
    """A store in which whatever one waits for is there."""

    class Store(distributed.Store):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.values: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key: str) -> bytes:
            return self.values.get(key, b"\1" * 128)  # As long as an identifier of NCCL's.

        def add(self, key: str, value: int) -> int:
            found = int(self.values.get(key, b"0")) + value
            self.values[key] = str(found).encode()
            return found

        def compare_set(self, key: str, expected: Any, value: Any) -> bytes:
            self.set(key, value)
            return self.get(key)

        def check(self, keys: list[str]) -> bool:
            return all(key in self.values for key in keys)  # No rank has told of an error.

        def wait(self, keys: list[str], timeout: Any = None) -> None:
            return None

        def delete_key(self, key: str) -> bool:
            return self.values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self.values)

        def set_timeout(self, timeout: Any) -> None:
            return None

    return Store()


def _agree(groups: Any) -> None:
    """Objects that ranks exchange are this one's own; shapes are not compared."""

    def all_gather_object(objects: list[Any], own: Any, *_: Any, **__: Any) -> None:
        objects[:] = [own] * len(objects)

    def gather_object(own: Any, objects: Any = None, *_: Any, **__: Any) -> None:
        if objects is not None:
            objects[:] = [own] * len(objects)

    def broadcast_object_list(objects: list[Any], *_: Any, **__: Any) -> None:
        return None

    def scatter_object_list(into: list[Any], objects: Any = None, *_: Any, **__: Any) -> None:
        if objects:
            into[0] = objects[0]

    for made in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list):
        _replace(groups, made.__name__, made)
    replicas: Any = importlib.import_module("torch.nn.parallel.distributed")
    replicas._verify_param_shape_across_processes = lambda *_, **__: True


class _Joined:
    """The processes of a job that has run here already."""

    processes: tuple[Any, ...] = ()

    def join(self, *_: Any, **__: Any) -> bool:
        return True

    def pids(self) -> list[int]:
        return []


def _replace_spawn(torch: Any, watch: Watch, world_size: int, rank: int) -> None:
    """Of the processes that a script starts for its ranks, this one does what that of its rank would do."""
    processes: Any = importlib.import_module("torch.multiprocessing")

    def spawn(fn: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> Any:
        if nprocs > 1 and world_size == 1:
            _refuse(watch, nprocs)
        fn(rank % max(nprocs, 1), *args)
        return _Joined()

    processes.spawn = processes.start_processes = spawn

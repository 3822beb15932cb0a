# SPDX-License-Identifier: Apache-2.0
"""The memory spaces of a compiled program, and the devices that they lie on. Needs nothing but Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from memc.ir.messages import shown
from memc.ir.spaces import DeviceId, Holds
from memc.runtime.artifact.plan_items import text, whole


@dataclass(frozen=True)
class Storage:
    """A memory space as a program uses it."""

    name: str
    device: DeviceId
    holds: Holds
    """What `Space.holds` says."""
    alignment: int
    """Bytes of which offsets in it, or the addresses of the caller's tensors, are multiples."""
    bytes: int

    @property
    def is_allocated(self) -> bool:
        """Whether the program has a storage for it: all have but what the caller gives."""
        return self.holds != "io"

    @property
    def is_pinned(self) -> bool:
        """Whether it is memory of the host that a device's copies reach: a slab, which memc's library makes."""
        return self.device.kind == "cuda_host"

    @property
    def maker(self) -> str:
        """The function of model.so that allocates it."""
        return f"space.{self.name}"

    @property
    def viewer(self) -> str:
        """The function of model.so that gives its bytes as a tensor."""
        return f"bytes.{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """An entry of plan.json."""
        return {
            "name": self.name,
            "device": str(self.device),
            "holds": self.holds,
            "alignment": self.alignment,
            "bytes": self.bytes,
        }


def storage(item: Mapping[str, Any]) -> Storage:
    """An entry of plan.json. Raises ValueError, KeyError or TypeError if it is none."""
    holds = text(item["holds"])
    if holds not in get_args(Holds):
        raise ValueError(f"holds: expected one of {', '.join(get_args(Holds))}, got {shown(holds)}")
    found = Storage(
        text(item["name"]),
        DeviceId.parse(text(item["device"])),
        holds,  # type: ignore[arg-type]
        whole(item["alignment"]),
        whole(item["bytes"]),
    )
    if found.alignment < 1:
        raise ValueError(f"space {found.name}: expected an alignment of at least 1 byte, got {found.alignment}")
    return found


def devices_of(storages: Iterable[Storage]) -> tuple[DeviceId, ...]:
    """The devices of a program in the order of its virtual machine, which wants the CPU last. It knows nothing of pinned memory."""
    found = dict.fromkeys(storage.device for storage in storages if not storage.is_pinned)
    return tuple(sorted(found, key=lambda device: device.kind == "cpu"))

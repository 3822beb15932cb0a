# SPDX-License-Identifier: Apache-2.0
"""Files of measured times, as `memc bench --save-profile` writes them:

    {"device": {"kind": "cuda", "arch": "sm_90", "name": "NVIDIA H200"},
     "ops": {SIGNATURE: SECONDS, ...},
     "link": {"out": {"bandwidth": B, "shared": B, "latency": S, "sync": S, "drag": F}, "in": {...}}}

Rates are bytes a second; `sync` and `drag` are 0 where they are left out. Each part may be missing; an object of seconds by signature alone is `ops`. Passes that decide by time
read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memc.ir.errors import UsageError
from memc.ir.machine import device_names
from memc.ir.messages import nearest, shown
from memc.ir.target import Target
from memc.solvers.offload import FULL_SPEED, Lane

PARTS = ("device", "ops", "link")

WAYS = ("out", "in")

RATES = ("bandwidth", "shared", "latency")

TAKEN = ("sync", "drag")
"""What copies take ops; 0 by itself."""

MOST_DRAG = 0.25

SLOWEST = 1e8
"""Bytes a second that a link moves at least; slower ones could not be counted in picoseconds."""

_LINK = '{"out": {"bandwidth": 55e9, "shared": 50e9, "latency": 8e-6}, "in": {...}}'


@dataclass(frozen=True)
class Rates:
    """Copies of one direction."""

    bandwidth: float
    """Bytes a second while nothing moves the other way."""
    shared: float
    """Bytes a second while something does."""
    latency: float
    """Seconds that a copy takes beside those of its bytes."""
    sync: float = 0.0
    """Seconds that a copy takes ops: half of them where it is started, and the rest where it is waited for."""
    drag: float = 0.0
    """By how much ops are slower while something moves in this direction, as a share."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> Rates:
        """Those that an object of a file has. Raises KeyError, TypeError and ValueError for what is none."""
        taken = (float(found.get(name, 0.0)) for name in TAKEN)
        return Rates(*(float(found[name]) for name in RATES), *taken)

    def to_dict(self) -> dict[str, float]:
        """As `of` takes them."""
        return {name: getattr(self, name) for name in (*RATES, *TAKEN)}

    def lane(self) -> Lane:
        """As the search takes them."""
        shared = max(1, round(FULL_SPEED * self.shared / self.bandwidth))
        taken = (round(self.sync * 1e12), round(FULL_SPEED * self.drag))
        return Lane(round(self.latency * 1e12), round(2**20 / self.bandwidth * 1e12), shared, *taken)


@dataclass(frozen=True)
class Measured:
    """What a file says."""

    path: str
    device: Mapping[str, str] = field(default_factory=dict)
    """`kind`, `arch` and `name` of what was measured; empty where the file does not say."""
    ops: Mapping[str, float] = field(default_factory=dict)
    """Seconds by signature (`ir/cost_model.py`)."""
    link: tuple[Rates, Rates] | None = None
    """To the host, and back."""

    @property
    def where(self) -> str:
        """The device by its name, in words."""
        return f"measured on {self.device['name']}" if self.device.get("name") else "measured"


def read_measured(path: str, what: str, target: Target) -> Measured:
    """What a file of measured times says. `what`: the option that names it, for messages. Raises UsageError for a file that is
    none, and for one that was measured on another device than the target's or, where this machine has devices of that kind, than
    those."""
    where = f"{what} {path}"
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{where}: expected JSON as `memc bench --save-profile` writes it: {why}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{where}: expected an object as `memc bench --save-profile` writes it, got {shown(data)}")
    if not any(part in data for part in PARTS):
        data = {"ops": data}
    for name in data:
        if name not in PARTS:
            raise UsageError(f"{where}: expected {', '.join(PARTS)}, got {shown(name)}{nearest(str(name), PARTS)}")
    device = _device(where, data.get("device", {}))
    link = None if "link" not in data else (_rates(where, data["link"], "out"), _rates(where, data["link"], "in"))
    found = Measured(path, device, _ops(where, data.get("ops", {})), link)
    _require_device(where, found, target)
    return found


def _device(where: str, found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise UsageError(f"{where}: device: expected an object of kind, arch and name, got {shown(found)}")
    return found


def _ops(where: str, found: Any) -> Mapping[str, float]:
    if not isinstance(found, dict) or not all(_is_number(v) and 0 <= v < 1e6 for v in found.values()):
        raise UsageError(f"{where}: expected an object of seconds by op signature")
    return {str(name): float(seconds) for name, seconds in found.items()}


def _rates(where: str, link: Any, way: str) -> Rates:
    """The rates of one direction."""
    found = link.get(way) if isinstance(link, dict) else None
    if not isinstance(found, dict):
        raise UsageError(f"{where}: expected a link of `out` and `in`, such as {_LINK}, got {shown(link)}")
    for name in (*RATES, *(name for name in TAKEN if name in found)):
        if not _is_number(found.get(name)):
            got = shown(found[name]) if name in found else "nothing"
            raise UsageError(f"{where}: link: {way}: {name}: expected a number, got {got}; such as {_LINK}")
    rates = Rates.of(found)
    require_sound(where, rates)
    return rates


def require_sound(where: str, rates: Rates) -> None:
    """Raise UsageError for rates that no link has."""
    if not (SLOWEST <= rates.shared <= rates.bandwidth < 1e15 and 0 <= rates.latency < 1):
        raise UsageError(
            f"{where}: expected {SLOWEST:g} <= shared <= bandwidth, in bytes a second, and a latency of 0 to 1 seconds, got "
            f"{rates}"
        )
    if not (0 <= rates.sync < 1 and 0 <= rates.drag <= MOST_DRAG):
        raise UsageError(f"{where}: expected a sync of 0 to 1 seconds and a drag of 0 to {MOST_DRAG}, got {rates}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require_device(where: str, found: Measured, target: Target) -> None:
    kind, arch, name = (found.device.get(key, "") for key in ("kind", "arch", "name"))
    measured = f"{name or 'a device'} ({' '.join(filter(None, (kind, arch)))})"
    if (kind and kind != target.kind) or (arch and target.arch and arch.rstrip("af") != target.arch.rstrip("af")):
        wanted = " ".join(filter(None, (target.kind, target.arch)))
        raise UsageError(
            f"{where}: measured on {measured}, the target is {wanted}; measure there with memc bench --save-profile"
        )
    here = device_names(target.kind)
    if name and here and name not in here:
        raise UsageError(
            f"{where}: measured on {measured}, this machine has {', '.join(here)}; measure here with memc bench --save-profile, "
            "or take `device` out of the file to plan for that one"
        )

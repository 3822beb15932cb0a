# SPDX-License-Identifier: Apache-2.0
"""How fast values are copied between a device and its host: by the name of a machine, from a file, or as a target has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from memc.ir.copies import HOSTS
from memc.ir.errors import UsageError
from memc.ir.messages import nearest
from memc.ir.spaces import HOST, Link, Space
from memc.ir.target import Target
from memc.passes.measured_times import Rates, read_measured, require_sound
from memc.solvers.offload import Lanes


@dataclass(frozen=True)
class HostLink:
    """A device's link with its host."""

    name: str
    out: Rates
    """To the host."""
    back: Rates
    origin: str = "memc's table of links"
    """Where the rates are from, in words."""

    def lanes(self) -> Lanes:
        """As the search takes them."""
        return Lanes(self.out.lane(), self.back.lane())

    def target(self, target: Target) -> Target:
        """The target with a space `host` and this link to it."""
        device, spaces = target.device, target.spaces
        given = [space.device for space in spaces if space.name == HOST]
        host = given[0] if given else HOSTS[target.kind]
        if not given:
            spaces = (*spaces, Space(HOST, host, "values"))
        if host == device:
            return replace(target, spaces=spaces)  # A link joins two devices.
        ends = ((device, host, self.out), (host, device, self.back))
        links = tuple(Link(a, b, k.bandwidth, k.shared, k.latency, k.sync, k.drag) for a, b, k in ends)
        others = tuple(k for k in target.links if {k.source, k.destination} != {device, host})
        return replace(target, spaces=spaces, links=(*others, *links))


GB = 1e9

LINKS: Mapping[str, HostLink] = {
    # Pinned memory over PCIe 5, 16 lanes, as measured on one machine (benchmarks/results/gpu_offload.md): in a captured graph beside
    # kernels, where both at once are as much slower as alone, and each copy and its bytes take kernels some time; and alone, without a
    # graph: 47 GB/s at 1 MiB, 7 at 64 KiB. In a graph it was 5 % faster than this: a plan without slack would have many kernels
    # wait for copies that are a little late.
    "h200": HostLink(
        "h200", Rates(46 * GB, 42 * GB, 12e-6, 9e-6, 0.01), Rates(48.5 * GB, 43.7 * GB, 12e-6, 9e-6, 0.01)
    ),
    "h200-alone": HostLink("h200-alone", Rates(55.2 * GB, 50.5 * GB, 8e-6), Rates(55.4 * GB, 50.5 * GB, 8e-6)),
    "h100": HostLink("h100", Rates(52 * GB, 45 * GB, 8e-6), Rates(52 * GB, 45 * GB, 8e-6)),
    # PCIe 4: copies into the device lose half of their speed beside copies out of it.
    "a100": HostLink("a100", Rates(25 * GB, 24 * GB, 10e-6), Rates(25 * GB, 12 * GB, 10e-6)),
    # PCIe 3, as the papers of 2016 to 2020 used it.
    "titanx": HostLink("titanx", Rates(12 * GB, 12 * GB, 10e-6), Rates(12 * GB, 12 * GB, 10e-6)),
    # NVLink between processor and GPU.
    "gh200": HostLink("gh200", Rates(295 * GB, 200 * GB, 8e-6), Rates(342 * GB, 300 * GB, 8e-6)),
    # A thread of the processor that copies within its memory, beside those that compute.
    "memory": HostLink("memory", Rates(8 * GB, 4 * GB, 5e-6), Rates(8 * GB, 4 * GB, 5e-6)),
}

DEFAULTS = {"cuda": "h200", "llvm": "memory"}
"""The link of a kind of target where none is said."""


def link_of(named: str | None, target: Target, profile: str | None = None) -> HostLink:
    """The link that an option names, or else that of a `profile` (a file of measured times), or else that of the target, or else its
    kind's in `DEFAULTS`. Raises UsageError for a name that is none and a file that says none, or one of another device."""
    if named is None and profile is not None:
        measured = read_measured(profile, "profile", target)
        if measured.link is not None:
            return HostLink(profile, *measured.link, origin=measured.where)
    if named is None:
        default = LINKS[DEFAULTS[target.kind]]
        return _of_target(target) or replace(
            default, origin=f"memc's table of links, which `{target.kind}` has by itself"
        )
    if named in LINKS:
        return LINKS[named]
    if not Path(named).exists():
        raise UsageError(f"link: expected a file or one of {', '.join(LINKS)}, got {named!r}{nearest(named, LINKS)}")
    return _of_file(named, target)


def _of_target(target: Target) -> HostLink | None:
    hosts = [space.device for space in target.spaces if space.name == HOST]
    if not hosts:
        return None
    out, back = target.link(target.device, hosts[0]), target.link(hosts[0], target.device)
    if out is None or back is None:
        return None
    rates = [Rates(k.bandwidth, k.shared_bandwidth or k.bandwidth, k.latency, k.sync, k.drag) for k in (out, back)]
    for way in rates:
        require_sound("link: of the target", way)
    return HostLink("of the target", rates[0], rates[1], "the links that the IR gives its target")


def _of_file(path: str, target: Target) -> HostLink:
    found = read_measured(path, "link", target)
    if found.link is None:
        raise UsageError(
            f"link {path}: expected a link beside the ops, got none; memc bench --save-profile measures one, or name one of "
            f"{', '.join(LINKS)}"
        )
    return HostLink(path, *found.link, origin=found.where)

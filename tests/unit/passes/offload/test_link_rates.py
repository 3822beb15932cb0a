# SPDX-License-Identifier: Apache-2.0
"""Which link copies are planned for, and the target that has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memc.ir.errors import UsageError
from memc.ir.spaces import HOST, DeviceId, Link, Space
from memc.ir.target import Target
from memc.passes.measured_times import Rates
from memc.passes.offload.link_rates import LINKS, HostLink, link_of

GPU, PINNED, OTHER = DeviceId("cuda"), DeviceId("cuda_host"), DeviceId("cuda", 1)
CUDA = Target.of("cuda", "sm_90")
NAMED = HostLink("made", Rates(4e9, 3e9, 2e-6, 1e-6, 0.125), Rates(8e9, 5e9, 6e-6))
OUT = Link(GPU, PINNED, 4e9, 3e9, 2e-6, 1e-6, 0.125)
BACK = Link(PINNED, GPU, 8e9, 5e9, 6e-6)


def write(path: Path, link: object) -> str:
    path.write_text(json.dumps({"ops": {}} if link is None else {"link": link}))
    return str(path)


def rates(bandwidth: float) -> dict[str, float]:
    return {"bandwidth": bandwidth, "shared": 1e9, "latency": 1e-6}


def test_a_target_gets_the_space_and_the_link() -> None:
    made = NAMED.target(CUDA)
    assert made.space(HOST) == Space(HOST, PINNED, "values")
    assert made.spaces == (*CUDA.spaces, Space(HOST, PINNED, "values")) and made.links == (OUT, BACK)
    assert NAMED.lanes().out == NAMED.out.lane() and NAMED.lanes().back == NAMED.back.lane()


def test_links_between_other_devices_stay() -> None:
    beside = Link(GPU, OTHER, 1e11)
    given = Target.of(
        "cuda",
        spaces=[Space("far", OTHER), Space(HOST, PINNED)],
        links=[Link(GPU, PINNED, 1e9), beside, Link(PINNED, GPU, 1e9)],
    )
    made = NAMED.target(given)
    assert made.spaces == given.spaces and made.links == (beside, OUT, BACK)


def test_a_host_on_the_same_device_has_no_link() -> None:
    made = NAMED.target(Target())
    assert made.space(HOST).device == made.device == DeviceId("cpu") and made.links == ()


def test_what_comes_before_what(tmp_path: Path) -> None:
    """A name or file of its own, then the profile's, then the target's, then the kind's."""
    of_target = NAMED.target(CUDA)
    profile = write(tmp_path / "profile.json", {"out": rates(2e9), "in": rates(3e9)})
    without = write(tmp_path / "without.json", None)
    named = write(tmp_path / "link.json", {"out": rates(5e9), "in": rates(6e9)})
    assert link_of("a100", of_target, profile) is LINKS["a100"]
    found = link_of(named, of_target, profile)
    assert (found.name, found.out.bandwidth, found.back.bandwidth, found.origin) == (named, 5e9, 6e9, "measured")
    found = link_of(None, of_target, profile)
    assert (found.name, found.out.bandwidth, found.back.bandwidth, found.origin) == (profile, 2e9, 3e9, "measured")
    for other in (None, without):
        found = link_of(None, of_target, other)
        assert (found.name, found.out, found.back) == ("of the target", NAMED.out, NAMED.back)
        found = link_of(None, CUDA, other)
        assert (found.name, found.out, found.back) == ("h200", LINKS["h200"].out, LINKS["h200"].back)
    assert link_of(None, Target()).name == "memory"


def test_a_target_with_half_a_link_has_none() -> None:
    whole = NAMED.target(CUDA)
    for link in whole.links:
        assert link_of(None, replace(whole, links=(link,))).name == "h200"


def test_a_targets_link_that_says_nothing_of_both_at_once() -> None:
    links = (Link(GPU, PINNED, 4e9), Link(PINNED, GPU, 8e9, 2e9))
    found = link_of(None, replace(NAMED.target(CUDA), links=links))
    assert (found.out, found.back) == (Rates(4e9, 4e9, 0.0), Rates(8e9, 2e9, 0.0))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="^link: expected a file or one of h200, .*, got 'h20'; did you mean h200"):
        link_of("h20", CUDA)
    with pytest.raises(UsageError, match="expected a link beside the ops, got none"):
        link_of(write(tmp_path / "without.json", None), CUDA)
    slow = (Link(GPU, PINNED, 4e9), Link(PINNED, GPU, 8e9, 1e7))
    with pytest.raises(UsageError, match="^link: of the target: expected"):
        link_of(None, replace(NAMED.target(CUDA), links=slow))


def test_every_link_of_the_table_is_sound() -> None:
    for name, link in LINKS.items():
        assert link.name == name
        for way in (link.out, link.back):
            assert 1e9 < way.shared <= way.bandwidth < 1e12 and 0 < way.latency < 1e-4 and way.drag <= 0.25

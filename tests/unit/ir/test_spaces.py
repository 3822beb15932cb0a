# SPDX-License-Identifier: Apache-2.0
"""Spaces and links of a target: what they may be, how they are written, and how a copy's duration follows."""

from __future__ import annotations

from typing import Any

import pytest

from memc.ir.byte_range import ByteRange
from memc.ir.errors import InvalidError, UsageError
from memc.ir.liveness import lifetimes, space_bytes, space_of
from memc.ir.spaces import DeviceId, Link, Space
from memc.ir.target import Target
from memc.ir.text.difference import difference
from memc.ir.text.parser import parse
from memc.passes.manager import PassManager

CPU, GPU, HOST = DeviceId("cpu"), DeviceId("cuda"), DeviceId("cuda_host")

TEXT = """\
space @host {device = "cpu:0", holds = "values"}

func @main(%x: f32[4,8] {role = input}, %w: f32[8] {role = weight}) -> f32[4,8] {
  %a = exp(%x) : f32[4,8] @arena[0]
  %b = add(%a, %w) : f32[4,8] @host[64]
  %c = tanh(%b) : f32[4,8] @arena[0]
  %y = add(%c, %b) : f32[4,8]
  return %y
}
"""


def test_the_spaces_that_every_target_has() -> None:
    for kind, device in (("llvm", CPU), ("cuda", GPU)):
        target = Target.of(kind)
        assert [(s.name, s.device, s.holds) for s in target.spaces] == [
            ("arena", device, "values"),
            ("weights", device, "weights"),
            ("io", device, "io"),
        ]
        assert target.more_spaces() == () and target.device == device
    assert str(parse("func @main() -> () {\n  return\n}\n")) == "func @main() -> () {\n  return\n}\n"


def test_spaces_and_links_are_kept_by_text() -> None:
    links = (Link(GPU, HOST, 55.2e9, latency=8e-6), Link(HOST, GPU, 55.4e9, 50.5e9))
    target = Target.of(
        "cuda", spaces=[Space("host", HOST), Space("weights", DeviceId("cuda", 1), "weights")], links=links
    )
    module = parse(TEXT)
    module.target = target
    assert str(module).splitlines()[:5] == [
        'target {kind = "cuda", arch = "sm_90", alignment = 256}',
        'space @weights {device = "cuda:1", holds = "weights"}',
        'space @host {device = "cuda_host:0", holds = "values"}',
        'link {source = "cuda:0", destination = "cuda_host:0", bandwidth = 55200000000.0, latency = 8e-06}',
        'link {source = "cuda_host:0", destination = "cuda:0", bandwidth = 55400000000.0, shared_bandwidth = 50500000000.0}',
    ]
    again = parse(str(module))
    assert again.target == target and difference(again, module) is None and str(again) == str(module)
    assert str(parse(TEXT)) == TEXT
    assert target.link(GPU, HOST) == links[0] and target.link(GPU, CPU) is None


def test_durations_of_copies() -> None:
    link = Link(GPU, HOST, 50e9, 25e9, 1e-5)
    assert link.seconds(5 * 10**9) == pytest.approx(0.1 + 1e-5, rel=1e-12)
    assert link.seconds(5 * 10**9, shared=True) == pytest.approx(0.2 + 1e-5, rel=1e-12)
    assert link.seconds(0) == 0.0
    assert Link(GPU, HOST, 50e9).seconds(100, shared=True) == 100 / 50e9


@pytest.mark.parametrize(
    "header, says",
    [
        ("space @host {}", "1:1: expected the device of a space, got none"),
        ('space @host {device = "tpu:0"}', "1:14: device: expected a device such as cpu:0, cuda:1 or cuda_host:0, got 'tpu:0'"),
        ('space @host {device = "cpu:0", holds = "files"}', "1:32: holds: expected one of values, weights, io, got 'files'"),
        ('space @host {device = "cpu:0", size = 3}', "expected a field of a space (device, holds), got size"),
        ('space @"a b" {device = "cpu:0"}', "1:7: space: name: expected letters, digits, _ and - after a letter, got 'a b'"),
        ('space @a {device = "cpu:0"}\nspace @a {device = "cpu:0"}', "2:7: space a: expected each space once, got it again"),
        ('space @arena {device = "cuda:0"}', "1:7: space arena: expected a device of kind cpu, got cuda:0"),
        ('space @io {device = "cpu:0"}', "1:7: space io: expected one that holds io"),
        ("link {}", "1:1: expected the source of a link, got none"),
        ('link {source = "cpu:0", destination = "cpu:0", bandwidth = 1.0}', "link: expected two devices, got cpu:0 twice"),
        (
            'link {source = "cpu:0", destination = "cuda:0", bandwidth = 1.0}',
            "1:1: link: expected devices that spaces lie on, got cuda:0",
        ),
        (
            'link {source = "cpu:0", destination = "cuda:0", bandwidth = 0.0}',
            "1:49: bandwidth: expected bytes a second above 0, got 0.0",
        ),
        (
            'link {source = "cpu:0", destination = "cuda:0", bandwidth = 1.0, shared_bandwidth = 2.0}',
            "link: shared_bandwidth: expected at most the bandwidth, 1, got 2",
        ),
        ('target {spaces = ["host"]}', "expected a field of a target (kind, arch, alignment), got spaces"),
    ],
)  # fmt: skip
def test_headers_that_are_refused(header: str, says: str) -> None:
    with pytest.raises(InvalidError) as caught:
        parse(header)
    assert says in str(caught.value).splitlines()[0]


def test_a_link_is_given_once() -> None:
    link: Any = Link(CPU, DeviceId("cpu", 1), 1.0)
    with pytest.raises(UsageError, match="link from cpu:0 to cpu:1: expected each link once, got it again"):
        Target.of("llvm", spaces=[Space("far", DeviceId("cpu", 1))], links=[link, link])
    with pytest.raises(UsageError, match=r"expected a space of the target \(arena, weights, io\), got host"):
        Target().space("host")


def test_what_lies_in_each_space() -> None:
    function = parse(TEXT).main
    named = {v.name: v for v in function.values()}
    assert {name: space_of(function, v) for name, v in named.items()} == {
        "x": "io", "w": "weights", "a": "arena", "b": "host", "c": "arena", "y": "io",
    }  # fmt: skip
    assert [(life.root.name, life.lower, life.upper) for life in lifetimes(function)] == [("a", 0, 2), ("c", 2, 4)]
    assert [(life.root.name, life.lower, life.upper) for life in lifetimes(function, "host")] == [("b", 1, 4)]
    assert (space_bytes(function, "arena"), space_bytes(function, "host")) == (128, 192)
    assert not ByteRange.of(named["a"]).meets(ByteRange.of(named["b"]))
    other = parse(TEXT.replace("@arena[0]", "@host[128]")).main
    ranges = [ByteRange.of(v) for v in other.values() if v.name in "abc"]
    assert ranges[0].meets(ranges[1]) and ranges[0].meets(ranges[2])


def test_addresses_of_other_spaces_stay() -> None:
    module = parse(TEXT.replace(" @arena[0]", ""))
    PassManager.parse("assign-addresses").run(module)
    assert str(module) == TEXT

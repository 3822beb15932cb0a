# SPDX-License-Identifier: Apache-2.0
"""Bytes by space and kind."""

from __future__ import annotations

from memc.ir.function_footprint import footprint_of
from memc.ir.spaces import DeviceId, Space
from memc.ir.target import Target
from memc.ir.text.parser import parse

TEXT = """\
func @main(%x: f32[5] {role = input}, %w: f32[20] {role = weight}, %m: f32[3] {role = state}) -> (f32[5], f32[3]) {
  %k = constant() {value = dense<f32[]>[2.0]} : f32[]
  %a = mul(%x, %k) workspace(%s: u8[100] @arena[64]) : f32[5] @arena[0]
  %b = exp(%a) : f32[5] @host[128]
  %y = add(%b, %a) workspace(%t: u8[7] @arena[192]) : f32[5]
  %n = assign(%m, %m) plan {in_place = 0} : f32[3] alias %m[0]
  return %y, %n
}
"""


def test_bytes_by_space_and_kind() -> None:
    for device in (DeviceId("cpu"), DeviceId("cpu", 1)):
        target = Target.of("llvm", spaces=[Space("host", device)])
        found = footprint_of(parse(TEXT).main, target)
        assert {space.name: (space.bytes, dict(space.kinds), space.lower_bound) for space in found.spaces} == {
            "arena": (256, {"workspace": 100}, 192),
            "weights": (256, {"weights": 192, "states": 64}, None),
            "io": (40, {"inputs": 20, "outputs": 20}, None),
            "host": (192, {"workspace": 0}, 64),
        }
        far = 0 if device == DeviceId("cpu") else 192
        assert found.peak == 256 + 256 + 40 and found.on(DeviceId("cpu", 1)) == far
        assert (found["host"], found["none"], found.kind("states"), found.kind("workspace")) == (192, 0, 64, 100)


def test_other_sizes_and_texts() -> None:
    found = footprint_of(parse(TEXT).main, Target.of("llvm", spaces=[Space("host", DeviceId("cpu", 1))]))
    changed = found.with_bytes("arena", 1000)
    assert changed.peak == found.peak + 744 and changed.only("arena").peak == 1000 and found["arena"] == 256
    assert changed.text() == "arena 1000, weights 256, inputs and outputs 40"
    assert found.text(hex) == "arena 0x100, weights 0x100, inputs and outputs 0x28"
    assert found.to_dict()["peak"] == found.peak
    assert found.to_dict()["spaces"][3] == {
        "name": "host", "device": "cpu:1", "bytes": 192, "kinds": {"workspace": 0}, "lower_bound": 64,
    }  # fmt: skip


def test_offsets_are_rounded_to_the_target() -> None:
    found = footprint_of(parse(TEXT).main, Target.of("cuda"))
    assert (found["arena"], found["weights"], found["io"]) == (256, 768, 40)
    assert found.arena.lower_bound == 512 and found["host"] == 0

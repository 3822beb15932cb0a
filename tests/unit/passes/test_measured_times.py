# SPDX-License-Identifier: Apache-2.0
"""Files of measured times: what is read from them, and what is refused with the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memc.ir.errors import UsageError
from memc.ir.target import Target
from memc.passes import measured_times
from memc.passes.measured_times import Rates, read_measured, require_sound
from memc.solvers.offload import FULL_SPEED, Lane

OUT = {"bandwidth": 2**30, "shared": 2**29, "latency": 3e-6, "sync": 4e-6, "drag": 0.25}
IN = {"bandwidth": 2**31, "shared": 2**31, "latency": 0}
CUDA = Target.of("cuda", "sm_90")


def write(folder: Path, data: Any) -> str:
    path = folder / "times.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_rates_in_the_units_of_the_search() -> None:
    # 2**20 bytes take 1/1024 s: 976,562,500 ps.
    assert Rates.of(OUT).lane() == Lane(3_000_000, 976_562_500, FULL_SPEED // 2, 4_000_000, FULL_SPEED // 4)
    assert Rates.of(IN).lane() == Lane(0, 488_281_250, FULL_SPEED, 0, 0)
    # A direction that all but stands still beside the other one is never at speed 0.
    assert Rates(1e14, 1e8, 0).lane().shared == 1
    assert Rates.of(OUT).to_dict() == OUT
    assert Rates.of(Rates.of(IN).to_dict()) == Rates.of(IN)


def test_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_times, "device_names", lambda kind: ())
    device = {"kind": "cuda", "arch": "sm_90a", "name": "NVIDIA H200"}
    path = write(tmp_path, {"device": device, "ops": {"exp f32[4]": 2, "b": 0}, "link": {"out": OUT, "in": IN}})
    found = read_measured(path, "profile", CUDA)
    assert (found.path, found.device, found.where) == (path, device, "measured on NVIDIA H200")
    assert found.ops == {"exp f32[4]": 2.0, "b": 0.0}
    assert found.link == (Rates(2**30, 2**29, 3e-6, 4e-6, 0.25), Rates(2**31, 2**31, 0.0, 0.0, 0.0))


def test_an_object_of_seconds_is_that_of_ops(tmp_path: Path) -> None:
    found = read_measured(write(tmp_path, {"exp f32[4]": 0.5}), "profile", CUDA)
    assert (found.ops, found.link, found.device, found.where) == ({"exp f32[4]": 0.5}, None, {}, "measured")
    assert read_measured(write(tmp_path, {"device": {"name": ""}}), "profile", CUDA).where == "measured"


@pytest.mark.parametrize(
    "data, words",
    [
        ("{", "expected JSON"),
        ([1], "expected an object as"),
        ({"ops": {}, "opps": {}}, "expected device, ops, link, got 'opps'; did you mean ops?"),
        ({"device": "H200"}, "device: expected an object of kind, arch and name, got 'H200'"),
        ({"device": {"kind": 1}}, "device: expected an object of kind, arch and name"),
        ({"ops": [1]}, "expected an object of seconds by op signature"),
        ({"ops": {"a": "fast"}}, "expected an object of seconds by op signature"),
        ({"ops": {"a": True}}, "expected an object of seconds by op signature"),
        ({"ops": {"a": -1e-9}}, "expected an object of seconds by op signature"),
        ({"ops": {"a": 1e6}}, "expected an object of seconds by op signature"),
        ({"link": 3}, "expected a link of `out` and `in`"),
        ({"link": {"out": OUT}}, "expected a link of `out` and `in`"),
        ({"link": {"out": OUT, "in": 3}}, "expected a link of `out` and `in`"),
        (
            {"link": {"out": {"bandwidth": 1e9, "shared": 1e9}, "in": IN}},
            "link: out: latency: expected a number, got nothing",
        ),
        ({"link": {"out": OUT, "in": {**IN, "drag": True}}}, "link: in: drag: expected a number, got True"),
        ({"link": {"out": OUT, "in": {**IN, "sync": "1"}}}, "link: in: sync: expected a number, got '1'"),
        ({"link": {"out": {**OUT, "shared": 2**31}, "in": IN}}, "<= shared <= bandwidth"),
        ({"link": {"out": OUT, "in": {**IN, "latency": 1}}}, "a latency of 0 to 1 seconds"),
    ],
)
def test_refusals(tmp_path: Path, data: Any, words: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(UsageError) as caught:
        read_measured(path, "profile", CUDA)
    message = str(caught.value)
    assert message.startswith(f"profile {path}: ") and words in message and "\n" not in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_measured(str(tmp_path / "none.json"), "profile", CUDA)


@pytest.mark.parametrize(
    "rates, sound",
    [
        (Rates(1e8, 1e8, 0.0), True),
        (Rates(1e8, 0.99e8, 0.0), False),
        (Rates(1e9, 1.01e9, 0.0), False),
        (Rates(9e14, 1e9, 0.999), True),
        (Rates(1e15, 1e9, 0.0), False),
        (Rates(1e9, 1e9, -1e-9), False),
        (Rates(1e9, 1e9, 1.0), False),
        (Rates(1e9, 1e9, 0.0, 0.999, 0.25), True),
        (Rates(1e9, 1e9, 0.0, 1.0, 0.0), False),
        (Rates(1e9, 1e9, 0.0, -1e-9, 0.0), False),
        (Rates(1e9, 1e9, 0.0, 0.0, 0.2501), False),
        (Rates(1e9, 1e9, 0.0, 0.0, -0.01), False),
    ],
)
def test_rates_that_no_link_has(rates: Rates, sound: bool) -> None:
    if sound:
        require_sound("link", rates)
    else:
        with pytest.raises(UsageError, match="^link: expected .*, got Rates"):
            require_sound("link", rates)


@pytest.mark.parametrize(
    "device, here, words",
    [
        ({"kind": "llvm"}, (), "measured on a device (llvm), the target is cuda sm_90;"),
        ({"arch": "sm_80", "name": "A100"}, (), "measured on A100 (sm_80), the target is cuda sm_90;"),
        ({"kind": "cuda", "arch": "sm_90f"}, (), None),
        ({"kind": "cuda", "name": "NVIDIA H100"}, ("NVIDIA H200", "T4"), "this machine has NVIDIA H200, T4;"),
        ({"kind": "cuda", "name": "T4"}, ("NVIDIA H200", "T4"), None),
        ({"name": "T4"}, (), None),
        ({}, ("NVIDIA H200",), None),
    ],
)
def test_of_another_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: dict[str, str], here: tuple[str, ...], words: str | None
) -> None:
    monkeypatch.setattr(measured_times, "device_names", lambda kind: here if kind == "cuda" else ("a processor",))
    path = write(tmp_path, {"device": device})
    if words is None:
        assert read_measured(path, "link", CUDA).device == device
    else:
        with pytest.raises(UsageError) as caught:
            read_measured(path, "link", CUDA)
        assert words in str(caught.value) and str(caught.value).startswith(f"link {path}: measured on ")


def test_a_target_without_an_architecture_takes_files_of_any() -> None:
    measured_times._require_device("link f", measured_times.Measured("f", {"arch": "sm_80"}), Target())

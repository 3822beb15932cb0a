# SPDX-License-Identifier: Apache-2.0
"""What pictures count, what differs between two, and how they are packed."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

from memc.picture.changes import changes
from memc.picture.packing import pack, packed_page
from memc.picture.picture import PlanPicture


def test_live_bytes_are_rounded_up_and_have_gaps(picture: PlanPicture) -> None:
    assert picture.live_bytes().tolist() == [128, 128 + 192 + 64, 320, 192 + 64, 64 + 64]
    assert picture.live_bytes(role="workspaces").tolist() == [0, 64, 0, 0, 64]
    assert picture.peak_step() == 1
    assert [tensor.name for tensor in picture.live_at(1)] == ["b", "a", "w"]
    assert [tensor.name for tensor in picture.live_at(4)] == ["w", "g"]


def test_roles_come_by_bytes_times_steps(picture: PlanPicture) -> None:
    assert picture.roles() == ["activations", "workspaces", "gradients"]  # 690, 128 and 120.


def test_a_plan_without_steps() -> None:
    empty = PlanPicture("nothing", "step", 0, (), ())
    assert empty.roles() == []
    assert json.loads(packed_page([empty], []))["pictures"][0]["steps"] == 0


def test_changes_by_name(picture: PlanPicture) -> None:
    a, b, g, w = picture.tensors
    other = replace(
        picture,
        tensors=[
            replace(a, offset=64),
            replace(b, nbytes=260, decision="kept"),
            replace(w, lives=((1, 3), (4, 5))),
            replace(a, name="new"),
        ],
    )
    found = {change.name: (change.what, change.added_bytes) for change in changes(picture, other)}
    assert found == {
        "a": ("moved", 0),
        "b": ("130 B to 260 B, in place to kept", 130),
        "g": ("gone", -60),
        "new": ("new", 100),
        "w": ("live for 2 to 3 steps", 0),
    }
    assert changes(picture, picture) == []


def test_tensors_of_one_name_are_paired_in_their_order(picture: PlanPicture) -> None:
    a = picture.tensors[0]
    twice = replace(picture, tensors=[a, replace(a, lives=((3, 5),))])
    (change,) = changes(replace(picture, tensors=[a]), twice)
    assert (change.name, change.what, change.before) == ("a", "new", None)


@pytest.mark.parametrize(
    ("numbers", "kind", "type"),
    [
        ([0, 255], "u8", "<u1"),
        ([0, 256], "u16", "<u2"),
        ([2**16], "u32", "<u4"),
        ([2**40 + 1], "f64", "<f8"),
        (np.array([0.5, 2.0]), "f64", "<f8"),
        ([], "u8", "<u1"),
    ],
)
def test_columns_take_the_narrowest_type(numbers: list[int], kind: str, type: str) -> None:
    found = pack(numbers)
    assert found["t"] == kind
    assert np.frombuffer(base64.b64decode(found["d"]), type).tolist() == list(numbers)


def test_packed_data_has_every_value_and_no_markup(picture: PlanPicture) -> None:
    text = packed_page([replace(picture, title="</script><!--")], [])
    assert "<" not in text
    data = json.loads(text)
    shown = data["pictures"][0]

    def column(packed: dict[str, str]) -> list[float]:
        types = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}
        return np.frombuffer(base64.b64decode(packed["d"]), types[packed["t"]]).tolist()

    assert shown["title"] == "</script><!--"
    assert [data["texts"][int(at)] for at in column(shown["tensors"]["name"])] == ["a", "b", "g", "w"]
    assert column(shown["tensors"]["offset"]) == [0, 128, 0, 320]
    lives = zip(*(column(shown["lives"][name]) for name in ("tensor", "lower", "upper")))
    assert list(lives) == [(0, 0, 3), (1, 1, 4), (3, 1, 2), (2, 3, 5), (3, 4, 5)]
    assert column(shown["tensors"]["usesEnd"]) == [2, 4, 6, 6]
    assert data["texts"][int(column(shown["tensors"]["others"])[3])] == "w2, w3"
    assert column(shown["copies"]["end"]) == [2.5]
    assert shown["spaces"] == [{"name": "arena", "bytes": 400, "lowerBound": 384, "budget": 600, "alignment": 64}]

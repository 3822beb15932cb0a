# SPDX-License-Identifier: Apache-2.0
"""Pictures as data of a page: columns of numbers in base64, and texts in a table of which columns hold the places."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .changes import Change
from .colours import HUES, role_hues
from .picture import CopySpan, PlacedTensor, PlanPicture

WIDE = 2**32
"""From which on whole numbers are packed as doubles, which hold those below 2**53."""


class _Texts:
    """Each text once."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {"": 0}

    def column(self, texts: Iterable[str]) -> dict[str, Any]:
        places = self.places
        return pack([places.setdefault(text, len(places)) for text in texts])


def pack(numbers: Sequence[float] | npt.NDArray[Any]) -> dict[str, Any]:
    """A column as `{"t": type, "d": base64}`, little-endian, in the narrowest type of u8, u16, u32 and f64."""
    array = np.asarray(numbers)
    if array.dtype.kind == "f" and array.size:
        return _packed("f64", array.astype("<f8"))
    most = int(array.max(initial=0))
    for name, kind, limit in (("u8", "<u1", 2**8), ("u16", "<u2", 2**16), ("u32", "<u4", WIDE)):
        if most < limit:
            return _packed(name, array.astype(kind))
    return _packed("f64", array.astype("<f8"))


def _packed(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    return {"t": name, "d": base64.b64encode(array.tobytes()).decode()}


def packed_page(pictures: Sequence[PlanPicture], changed: Sequence[Change]) -> str:
    """The data of a page as JSON that may stand in a script element."""
    texts = _Texts()
    names = dict.fromkeys(role for picture in pictures for role in picture.roles())
    data: dict[str, Any] = {"palette": {"hues": HUES, "roles": role_hues(names)}}
    data["pictures"] = [_picture(each, texts) for each in pictures]
    if len(pictures) > 1:
        data["changes"] = _changes(pictures, changed, texts)
    data["texts"] = list(texts.places)
    # A text cannot close the script element, nor open a comment in it.
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _picture(picture: PlanPicture, texts: _Texts) -> dict[str, Any]:
    tensors = picture.tensors
    lives = [(at, lower, upper) for at, tensor in enumerate(tensors) for lower, upper in tensor.lives]
    lives.sort(key=lambda life: life[1])
    return {
        "title": picture.title,
        "unit": picture.unit,
        "steps": picture.steps,
        "facts": [list(fact) for fact in picture.facts],
        "spaces": [
            {
                "name": space.name,
                "bytes": space.nbytes,
                "lowerBound": space.lower_bound,
                "budget": space.budget,
                "alignment": space.alignment,
            }
            for space in picture.spaces
        ],
        "roles": picture.roles(),
        "tensors": _tensors(picture, tensors, texts),
        "lives": {name: pack([life[at] for life in lives]) for at, name in enumerate(("tensor", "lower", "upper"))},
        "ops": {
            "name": texts.column(op.name for op in picture.ops),
            "result": texts.column(op.result for op in picture.ops),
            "place": texts.column(op.place for op in picture.ops),
        },
        "moments": pack(np.asarray(picture.moments, np.float64)),
        "seconds": pack(np.asarray(picture.seconds, np.float64)),
        "secondsFrom": picture.seconds_from,
        "copies": _copies(picture.copies, texts),
    }


def _tensors(picture: PlanPicture, tensors: Sequence[PlacedTensor], texts: _Texts) -> dict[str, Any]:
    number = {role: at for at, role in enumerate(picture.roles())}
    ends = np.cumsum([len(tensor.uses) for tensor in tensors], dtype=np.int64)
    return {
        "name": texts.column(tensor.name for tensor in tensors),
        "type": texts.column(tensor.type for tensor in tensors),
        "decision": texts.column(tensor.decision for tensor in tensors),
        "reason": texts.column(tensor.reason for tensor in tensors),
        "place": texts.column(tensor.place for tensor in tensors),
        "others": texts.column(", ".join(tensor.others) for tensor in tensors),
        "offset": pack([tensor.offset for tensor in tensors]),
        "bytes": pack([tensor.nbytes for tensor in tensors]),
        "space": pack([tensor.space for tensor in tensors]),
        "role": pack([number[tensor.role] for tensor in tensors]),
        "usesEnd": pack(ends),
        "uses": pack([use for tensor in tensors for use in tensor.uses]),
    }


def _copies(copies: Sequence[CopySpan], texts: _Texts) -> dict[str, Any]:
    return {
        "name": texts.column(copy.name for copy in copies),
        "way": pack([int(copy.way == "in") for copy in copies]),
        "begin": pack(np.array([copy.begin for copy in copies], np.float64)),
        "end": pack(np.array([copy.end for copy in copies], np.float64)),
        "bytes": pack([copy.nbytes for copy in copies]),
        "waited": pack(np.array([copy.waited for copy in copies], np.float64)),
    }


def _changes(pictures: Sequence[PlanPicture], changed: Sequence[Change], texts: _Texts) -> dict[str, Any]:
    """The changes, with the tensors' places in both pictures, from 1; 0 for none."""
    places = [{id(tensor): at for at, tensor in enumerate(picture.tensors, 1)} for picture in pictures]
    return {
        "name": texts.column(change.name for change in changed),
        "what": texts.column(change.what for change in changed),
        "before": pack([places[0].get(id(change.before), 0) for change in changed]),
        "after": pack([places[1].get(id(change.after), 0) for change in changed]),
    }

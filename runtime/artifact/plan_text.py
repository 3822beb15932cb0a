# SPDX-License-Identifier: Apache-2.0
"""plan.json as text: written with a checksum of itself, and read strictly. Needs nothing but Python."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

MOST = 2**63 - 1
"""The largest number that a plan has."""

INTERFACE = (
    "target",
    "devices",
    "spaces",
    "inputs",
    "outputs",
    "extents",
    "weights",
    "states",
    "library_functions",
)
"""What a plan and the code that it is of must agree in."""

_BEFORE = b'{\n "checksum": "'
"""How a plan begins, up to the eight digits of the checksum."""

_NO_CHECKSUM = b"00000000"


def checksum(data: bytes) -> str:
    """CRC-32 as eight digits: against damage, not against malice."""
    return f"{zlib.crc32(data):08x}"


def sealed(plan: Mapping[str, Any]) -> bytes:
    """A plan as text that begins with the checksum of the text, in which the checksum itself is eight zeros."""
    rest = {key: _finite(value) for key, value in plan.items() if key != "checksum"}
    data = (json.dumps({"checksum": _NO_CHECKSUM.decode(), **rest}, indent=1) + "\n").encode()
    assert data.startswith(_BEFORE + _NO_CHECKSUM)
    return _BEFORE + checksum(data).encode() + data[len(_BEFORE) + len(_NO_CHECKSUM) :]


def require_seal(data: bytes) -> None:
    """Raise ValueError if a plan's text is not what `sealed` wrote."""
    end = len(_BEFORE) + len(_NO_CHECKSUM)
    if not data.startswith(_BEFORE):
        raise ValueError("expected the checksum first")
    said, found = data[len(_BEFORE) : end].decode(errors="replace"), checksum(_BEFORE + _NO_CHECKSUM + data[end:])
    if said != found:
        raise ValueError(f"expected the checksum {said}, got {found}")


def parsed(data: bytes) -> dict[str, Any]:
    """The plan that a text holds. Raises ValueError for what is no JSON object, or has numbers that no plan has, or a name
    twice in one object."""
    try:
        found = json.loads(
            data, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_real, parse_int=_whole
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, got {type(found).__name__}")
    return found


def interface_text(described: Mapping[str, Any]) -> str:
    """One text for one interface."""
    return json.dumps({key: described[key] for key in INTERFACE}, sort_keys=True, separators=(",", ":"))


def difference(code: str, plan: Mapping[str, Any]) -> str | None:
    """What a plan says otherwise than the text of the code's own interface; None if nothing."""
    mine = json.loads(code)
    for key in INTERFACE:
        expected, got = (json.dumps(side[key], sort_keys=True) for side in (mine, plan))
        if expected != got:
            return f"{key}: the code has {_part(expected, got)}, the plan {_part(got, expected)}"
    return None


def _part(text: str, other: str) -> str:
    """The text around the first place where it differs from another."""
    if len(text) <= 60:
        return text
    at = next((n for n, (a, b) in enumerate(zip(text, other)) if a != b), min(len(text), len(other)))
    start = max(at - 30, 0)
    return f"{'...' if start else ''}{text[start : start + 60]}{'...' if start + 60 < len(text) else ''}"


def _finite(value: Any) -> Any:
    """A value for JSON, which has no infinity and no nan: null stands for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"`{next(name for name in names if names.count(name) > 1)}` is given twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"expected a number, got {text}")


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"expected a number of 64 bits, got {text[:40]}")
    return value


def _whole(text: str) -> int:
    value = int(text) if len(text) < 40 else MOST + 1
    if not -MOST <= value <= MOST:
        raise ValueError(f"expected a number of 64 bits, got {text[:40]}")
    return value

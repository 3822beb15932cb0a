# SPDX-License-Identifier: Apache-2.0
"""The text of PYTORCH_CUDA_ALLOC_CONF, as PyTorch 2.11 reads it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

from memc.ir.errors import UnsupportedError, UsageError
from memc.ir.messages import nearest, shown

from .allocators import MIB, Caching

_INTERVALS = 16
_MOST_MB = 2**40

_WITHOUT_EFFECT = (
    "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "graph_capture_record_stream_reuse",
)
"""What concerns time, the host's memory, or captures alone."""


def parse_alloc_conf(text: str, where: str = "--alloc-conf") -> Caching:
    """The settings that the text makes. `large_segment_size_mb` is read first: other limits depend on it.

    Raises UsageError for what PyTorch refuses, UnsupportedError for another backend than its own.
    """
    found = Caching()
    items = list(_items(text, where))
    for key, value in sorted(items, key=lambda item: item[0] != "large_segment_size_mb"):
        if key in _WITHOUT_EFFECT:
            continue
        try:
            found = _KEYS[key](found, value)
        except KeyError:
            known = (*_KEYS, *_WITHOUT_EFFECT)
            near = nearest(key, known) or f"; there are: {', '.join(sorted(_KEYS))}"
            raise UsageError(f"{where}: PyTorch 2.11 has no allocator setting {shown(key)}{near}") from None
        except ValueError as error:
            raise UsageError(f"{where}: {key}: {error}") from None
    return found


def _items(text: str, where: str) -> Iterator[tuple[str, list[str]]]:
    """Each key with its value: one token, or those between brackets."""
    tokens = re.findall(r"[,:\[\]]|[^,:\[\]]+", re.sub(r"\s", "", text))
    at = 0
    while at < len(tokens):
        key = tokens[at]
        if (
            key in ",:[]"
            or tokens[at + 1 : at + 2] != [":"]
            or at + 2 >= len(tokens)
            or tokens[at + 2] in (",", ":", "]")
        ):
            raise UsageError(f"{where}: expected KEY:VALUE,..., got {shown(text)}")
        end = at + 3
        if tokens[at + 2] == "[":
            if "]" not in tokens[end:]:
                raise UsageError(f"{where}: {key}: expected ] after the list, got {shown(text)}")
            end = tokens.index("]", end) + 1
            yield key, tokens[at + 2 : end]
        else:
            yield key, [tokens[at + 2]]
        if tokens[end : end + 1] not in ([], [","]):
            raise UsageError(f"{where}: expected a comma after {shown(key)}, got {shown(tokens[end])}")
        at = end + 1


def _one(value: list[str], expected: str) -> str:
    if len(value) != 1:
        raise ValueError(f"expected {expected}, got a list")
    return value[0]


def _megabytes(value: list[str], least: int) -> int:
    text = _one(value, "a number of megabytes")
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not least <= int(text) <= _MOST_MB:
        raise ValueError(f"expected megabytes from {least} on, got {shown(text)}")
    return int(text) * MIB


def _number(value: list[str], expected: str, holds: Callable[[float], bool]) -> float:
    text = _one(value, expected)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not holds(number):
        raise ValueError(f"expected {expected}, got {shown(text)}")
    return number


def _large_segment(found: Caching, value: list[str]) -> Caching:
    nbytes = _megabytes(value, 11)
    return replace(found, large_segment=nbytes, max_non_split_rounding=nbytes)


def _max_split(found: Caching, value: list[str]) -> Caching:
    return replace(found, max_split=_megabytes(value, found.large_segment // MIB))


def _max_non_split_rounding(found: Caching, value: list[str]) -> Caching:
    return replace(found, max_non_split_rounding=_megabytes(value, found.large_segment // MIB))


def _threshold(found: Caching, value: list[str]) -> Caching:
    number = _number(value, "a share above 0 and below 1", lambda share: 0 < share < 1)
    return replace(found, garbage_collection_threshold=number)


def _fraction(found: Caching, value: list[str]) -> Caching:
    number = _number(value, "a share from 0 to 1", lambda share: 0 <= share <= 1)
    return replace(found, memory_fraction=None if number == 1 else number)


def _expandable(found: Caching, value: list[str]) -> Caching:
    text = _one(value, "True or False")
    if text not in ("True", "False"):
        raise ValueError(f"expected True or False, got {shown(text)}")
    return replace(found, expandable_segments=text == "True")


def _backend(found: Caching, value: list[str]) -> Caching:
    name = _one(value, "native")
    if name == "cudaMallocAsync":
        raise UnsupportedError("backend:cudaMallocAsync: expected native, the only backend that is simulated")
    if name != "native":
        raise ValueError(f"expected native, got {shown(name)}")
    return found


def _divisions(found: Caching, value: list[str]) -> Caching:
    if value[0] != "[":
        return replace(found, divisions=(_power(value[0], "divisions", least=1),) * _INTERVALS)
    divisions = [0] * _INTERVALS
    last, first = 0, True
    for entry in _entries(value[1:-1]):
        size, number = entry
        steps = _power(number, "divisions", least=0)
        if size == ">":
            divisions[last + 1 :] = [steps] * (_INTERVALS - last - 1)
            continue
        interval = min(_power(size, "sizes in megabytes", least=1).bit_length() - 1, _INTERVALS - 1)
        if first:
            divisions[:interval] = [steps] * interval
            first = False
        divisions[interval] = steps
        last = interval
    return replace(found, divisions=tuple(divisions))


def _entries(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """`size:divisions` pairs between commas."""
    if not tokens:
        return
    for text in "".join(tokens).split(","):
        size, colon, number = text.partition(":")
        if not colon:
            raise ValueError(f"expected SIZE:DIVISIONS between commas, got {shown(text)}")
        yield size, number


def _power(text: str, what: str, least: int) -> int:
    number = int(text) if re.fullmatch(r"\d{1,12}", text, re.ASCII) else -1
    if number < least or number & (number - 1):
        _no_power(what, least, text)
    return number


def _no_power(what: str, least: int, text: str) -> NoReturn:
    zero = " or 0" if least == 0 else ""
    raise ValueError(f"expected {what} that are a power of two{zero}, got {shown(text)}")


_KEYS: dict[str, Callable[[Caching, list[str]], Caching]] = {
    "backend": _backend,
    "expandable_segments": _expandable,
    "garbage_collection_threshold": _threshold,
    "large_segment_size_mb": _large_segment,
    "max_non_split_rounding_mb": _max_non_split_rounding,
    "max_split_size_mb": _max_split,
    "per_process_memory_fraction": _fraction,
    "roundup_power2_divisions": _divisions,
}

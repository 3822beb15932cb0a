# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels kept on disk between compilations, by what they are made of.

An entry is a file of its own, named by a checksum of everything that its contents depend on, and begins with a checksum of its
contents. It is written beside its place and renamed, so that processes that share the folder see whole entries or none. What
cannot be read, is cut or was changed counts as missing and is compiled again; what cannot be written costs time only.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import tvm

from memc import native
from memc.ir.errors import UsageError
from memc.ir.files import cache_folder
from memc.ir.sizes import parse_size

FOLDER = "MEMC_KERNEL_CACHE"
"""Environment variable: the cache's folder, or `off`."""

SIZE = "MEMC_KERNEL_CACHE_SIZE"
"""Environment variable: the most bytes that the cache keeps, as `512MiB`."""

DEFAULT_SIZE = 1 << 30
"""Bytes."""

KEPT = 0.75
"""The part of the most bytes that is left when the oldest entries are removed."""

MAGIC = b"memc kernels 1\n"
ENDING = ".kernels"


def folder() -> Path | None:
    """Where kernels are kept; None if they are not."""
    given = os.environ.get(FOLDER)
    if given in ("off", "0"):
        return None
    return Path(given).expanduser() if given else cache_folder() / "kernels"


def most_bytes() -> int:
    """How large the cache may grow. Raises UsageError for what is no size."""
    given = os.environ.get(SIZE)
    if not given:
        return DEFAULT_SIZE
    try:
        return parse_size(given)
    except UsageError:
        raise UsageError(f"{SIZE}: expected a size such as 512MiB, got {given!r}") from None


@functools.cache
def _versions() -> bytes:
    """A checksum of what makes code of kernels: TVM, memc's own sources of code generation, and its library, which says how
    CUDA code is saved."""
    made = hashlib.sha256(f"{tvm.__version__} {platform.machine()}".encode())
    libraries = sorted((Path(tvm.__file__).parent / "lib").glob("libtvm_compiler*"))
    for library in (*libraries, native.library_path()):
        made.update(_state(library).encode())
    here = Path(__file__).parent
    for path in sorted(here.rglob("*.py")):
        made.update(str(path.relative_to(here)).encode() + path.read_bytes())
    return made.digest()


def _compiler() -> str:
    """Which nvcc there is and what its environment adds, so that another one compiles anew."""
    found = shutil.which("nvcc")
    flags = [os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    return f"{'no nvcc' if found is None else _state(Path(found).resolve())} {flags}"


def _state(path: Path) -> str:
    """What tells a file from an earlier one in its place."""
    state = path.stat()
    return f"{path} {state.st_size} {state.st_mtime_ns}"


def key_of(target: str, kernels: Sequence[str]) -> str:
    """The name of the entry of `kernels`, each told by text that says all of it, for `target`, as text."""
    made = hashlib.sha256(_versions())
    for part in (target, _compiler() if target.startswith("cuda") else "", *kernels):
        made.update(len(part).to_bytes(8, "little") + part.encode())
    return made.hexdigest()


def load(key: str) -> list[bytes] | None:
    """The parts of an entry; None if it is not there or not whole."""
    place = folder()
    if place is None:
        return None
    path = place / (key + ENDING)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(MAGIC) + 32
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[start:]).digest() != data[len(MAGIC) : start]:
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path)  # So that what is used stays longest.
    parts = []
    while start < len(data):
        end = start + 8 + int.from_bytes(data[start : start + 8], "little")
        parts.append(data[start + 8 : end])
        start = end
    return parts


def store(key: str, parts: Sequence[bytes]) -> None:
    """Keep an entry."""
    place = folder()
    if place is None:
        return
    data = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    path = place / (key + ENDING)
    partial = path.with_suffix(f".{uuid.uuid4().hex}")
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.write_bytes(MAGIC + hashlib.sha256(data).digest() + data)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()


def _is_own(path: Path) -> bool:
    """Whether a file is an entry, or the part of one that a writer has made; the folder may have others' files, too."""
    return path.suffix == ENDING or re.fullmatch(r"\.[0-9a-f]{32}", path.suffix) is not None


def shrink() -> None:
    """Remove the entries that were not used for longest, and what interrupted writers left, if the cache is too large."""
    place = folder()
    if place is None:
        return
    found: list[tuple[float, int, Path]] = []
    with suppress(OSError):
        for path in filter(_is_own, place.iterdir()):
            with suppress(OSError):  # Another process may have removed it.
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
    total, most = sum(size for _, size, _ in found), most_bytes()
    if total <= most:
        return
    for _, size, path in sorted(found):
        if total <= KEPT * most:
            break
        with suppress(OSError):
            path.unlink()
        total -= size

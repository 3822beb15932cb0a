# SPDX-License-Identifier: Apache-2.0
"""Files that users name, and the folder of what memc keeps."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import InvalidError


def read_bytes(path: str | Path) -> bytes:
    """What a file holds. Raises InvalidError if it cannot be read, or is a device, such as /dev/zero, that never ends."""
    name = " ".join(str(path).splitlines())  # So that a message has one line.
    try:
        if stat.S_ISCHR(os.stat(path).st_mode) and str(path) != os.devnull:
            raise InvalidError(f"{name}: cannot read: expected a file, got a device")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path.
        raise InvalidError(f"{name}: cannot read: {getattr(error, 'strerror', None) or error}") from None


def cache_folder() -> Path:
    """The folder of what memc keeps between processes, such as compiled kernels: below XDG_CACHE_HOME, or .cache at home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memc"

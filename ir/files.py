# SPDX-License-Identifier: Apache-2.0
"""Files that users name, and the folder of what memc keeps."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import UsageError


def read_bytes(path: str | Path) -> bytes:
    """What a file holds. Raises UsageError if it cannot be read, or is a device, such as /dev/zero, that never ends."""
    try:
        if stat.S_ISCHR(os.stat(path).st_mode) and str(path) != os.devnull:
            raise UsageError(f"{path}: cannot read: expected a file, got a device")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path.
        raise UsageError(f"{path}: cannot read: {getattr(error, 'strerror', None) or error}") from None


def cache_folder() -> Path:
    """The folder of what memc keeps between processes, such as compiled kernels: below XDG_CACHE_HOME, or .cache at home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memc"

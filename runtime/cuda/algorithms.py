# SPDX-License-Identifier: Apache-2.0
"""The algorithms that cuDNN and cuBLASLt calls were measured to be fastest with, kept in the artifact's folder.

They hold for one kind of device and one version of the libraries; the file has a list for each. With the list, runs give
the same bits as those before it, and nothing is measured twice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import tvm_ffi

FILE = "algorithms.json"


class Algorithms:
    """The choices of one artifact's call sites on a device."""

    def __init__(self, folder: Path, device: Any) -> None:
        self.path = folder / FILE
        self.index = int(device.index)
        self.kind = f"{device.device_name}, {tvm_ffi.get_global_func('memc.cuda.version')()}"
        self.stored = self._read()
        known = "\n".join(self.stored.get(self.kind, []))
        try:
            tvm_ffi.get_global_func("memc.cuda.remember")(self.index, known)
        except ValueError:  # Written by hand, or by another version of memc.
            self.stored.pop(self.kind)
        self.before = set(self._choices())

    def save(self) -> None:
        """Add what was chosen since this was made to the file; nothing happens where it cannot be written."""
        known = self.stored.setdefault(self.kind, [])
        new = [line for line in self._choices() if line not in self.before]
        if not new:
            return
        known += new
        part = self.path.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(self.stored, indent=1) + "\n")
            part.replace(self.path)
        except OSError:
            part.unlink(missing_ok=True)

    def _choices(self) -> list[str]:
        return str(tvm_ffi.get_global_func("memc.cuda.choices")(self.index)).splitlines()

    def _read(self) -> dict[str, list[str]]:
        try:
            found = json.loads(self.path.read_text())
            return {str(kind): [str(line) for line in lines] for kind, lines in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

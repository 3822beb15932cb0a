# SPDX-License-Identifier: Apache-2.0
"""memc on a machine where it is not installed, from the repository's tree."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def link_package() -> None:
    """Make memc importable from the repository's tree where it is not installed: a folder of links, first on the path."""
    try:
        import memc.ir  # noqa: F401

        return
    except ImportError:
        pass
    for name in [name for name in sys.modules if name == "memc" or name.startswith("memc.")]:
        del sys.modules[name]
    package = Path(tempfile.mkdtemp()) / "memc"
    package.mkdir()
    for item in (ROOT / "python/memc").iterdir():
        os.symlink(item, package / item.name)
    for name in ("ir", "passes", "runtime", "cpp"):
        os.symlink(ROOT / name, package / name)
    if "MEMC_CORE" in os.environ:
        os.symlink(Path(os.environ["MEMC_CORE"]).resolve(), package / "libmemc_core.so")
    sys.path.insert(0, str(package.parent))

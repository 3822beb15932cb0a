# SPDX-License-Identifier: Apache-2.0
"""The page of overloads is what the registry has."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[5]


def test_the_page_is_the_registry() -> None:
    spec = importlib.util.spec_from_file_location("torch_overload_table", ROOT / "scripts/torch_overload_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/pytorch_overloads.md").read_text(encoding="utf-8") == module.page(), (
        "run scripts/torch_overload_table.py"
    )

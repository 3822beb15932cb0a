# SPDX-License-Identifier: Apache-2.0
"""Imports go one way, and TVM is imported only under runtime/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ALLOWED = {
    "ir": {"ir"},
    "passes": {"ir", "passes", "native"},
    "runtime": {"ir", "runtime", "native"},
    "frontend": {"ir", "frontend"},
}
"""Which parts of memc each layer may import; the rest (driver, CLI, reports) may import all."""

NATIVE_DOORS = {ROOT / "memc/native.py", ROOT / "passes/solvers.py", ROOT / "passes/order_solvers.py"}
"""Files that call the native library, which speaks tvm-ffi (a small package of its own, not TVM)."""


def sources() -> Iterator[tuple[str, Path]]:
    for layer in ("ir", "passes", "runtime"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            yield layer, path
    for path in sorted((ROOT / "memc").rglob("*.py")):
        yield ("frontend" if "frontend" in path.parts else "memc"), path


def module_name(path: Path) -> list[str]:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return parts if parts[0] == "memc" else ["memc", *parts]


def imported(path: Path) -> Iterator[str]:
    """Absolute names of all modules that a file imports, at any depth."""
    package = module_name(path)[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{prefix}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("layer", "path"), list(sources()), ids=lambda item: str(item).replace(str(ROOT), ""))
def test_layer_imports_only_what_it_may(layer: str, path: Path) -> None:
    for name in imported(path):
        top, *rest = name.split(".")
        assert top not in ("ir", "passes", "runtime"), f"{path}: import memc.{top}, not {top}"
        assert top != "tvm" or layer == "runtime", f"{path}: {name} may be imported only under runtime/"
        if top == "tvm_ffi" and layer != "runtime":
            assert path in NATIVE_DOORS, f"{path}: {name}: only the doors to libmemc_core use tvm_ffi"
        if top == "memc" and rest and layer in ALLOWED:
            assert rest[0] in ALLOWED[layer], f"{path}: layer {layer} may not import {name}"


def test_every_file_is_seen() -> None:
    layers = {layer for layer, _ in sources()}
    assert layers == {"ir", "passes", "runtime", "frontend", "memc"}
    assert ("ir", ROOT / "ir/core.py") in list(sources())


def test_the_check_sees_relative_imports() -> None:
    names = set(imported(ROOT / "ir/ops/reshape.py"))
    assert "memc.ir.core.Array" in names and "memc.ir.ops.base.OpDef" in names

# SPDX-License-Identifier: Apache-2.0
"""Imports go one way, there are no circles, and TVM is imported only under runtime/."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ABOVE_IR = {"native", "solvers", "passes", "runtime", "frontend"}

ALLOWED = {
    "ir": {"ir"},
    "native": set[str](),
    "solvers": {"native", "solvers"},
    "passes": {"ir", "passes", "native", "solvers"},
    "runtime": {"ir", "runtime", "native"},
    "frontend": {"ir", "frontend"},
}
"""Which parts of memc each layer may import; the rest (driver, CLI, reports) may import all."""

SHARED = {"memc.ir.errors", "memc.ir.interval_index", "memc.ir.progress"}
"""What every layer may import: errors, ranges and progress know nothing of the IR."""

PASSES = (
    "",
    "rewrite",
    "training",
    "precision",
    "layout",
    "chunk",
    "kernels",
    "order",
    "placement",
    "recompute",
    "offload",
    "launches",
)
"""The subjects under passes/; "" for the machinery that runs them."""

NATIVE_DOORS = {ROOT / "python/memc" / name for name in ("native.py", "solvers/arrays.py")}
"""Files that use tvm-ffi (a small package of its own, not TVM), through which the native library is called."""


def sources() -> Iterator[tuple[str, Path]]:
    """Each file of the package with its layer."""
    for layer in ("ir", "passes", "runtime"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            yield layer, path
    for path in sorted((ROOT / "python/memc").rglob("*.py")):
        top = path.relative_to(ROOT / "python/memc").parts[0].removesuffix(".py")
        yield (top if top in ("frontend", "solvers", "native") else "memc"), path


def module_name(path: Path) -> list[str]:
    """Where the file installs."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[1:] if parts[0] == "python" else ["memc", *parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(path: Path, types_too: bool = True) -> Iterator[str]:
    """Absolute names of all modules and names that a file imports, at any depth; without `types_too` not those under
    `if TYPE_CHECKING`."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden: set[ast.AST] = set()
    if not types_too:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                hidden |= set(ast.walk(node))
    for node in ast.walk(tree):
        if node in hidden:
            continue
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
        if top == "memc" and rest and layer in ALLOWED and not any(name.startswith(shared) for shared in SHARED):
            assert rest[0] in ALLOWED[layer], f"{path}: layer {layer} may not import {name}"


def test_checkers_import_no_pass_and_no_solver() -> None:
    for path in sorted((ROOT / "ir/verify").rglob("*.py")):
        for name in imported(path):
            assert not name.startswith(("memc.passes", "memc.solvers")), f"{path} imports {name}"


def test_the_plan_checker_computes_its_own_lifetimes() -> None:
    assert not any(name.startswith("memc.ir.liveness") for name in imported(ROOT / "ir/verify/memory_plan.py"))


def graph() -> dict[str, set[str]]:
    """The files of the package by module name, with the modules that each imports (types apart)."""
    known = {".".join(module_name(path)) for _, path in sources()}
    edges: dict[str, set[str]] = {}
    for _, path in sources():
        module = ".".join(module_name(path))
        found = set()
        for name in imported(path, types_too=False):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != module:
                found.add(target)
        edges[module] = found
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def test_there_are_no_import_circles() -> None:
    assert circles(graph()) == []


def test_the_check_sees_a_circle() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_every_file_is_seen() -> None:
    layers = {layer for layer, _ in sources()}
    assert layers == {"ir", "passes", "runtime", "frontend", "solvers", "native", "memc"}
    assert ("ir", ROOT / "ir/core.py") in list(sources())
    assert {path.parent.name for path in (ROOT / "passes").rglob("*.py")} == {"passes", "updates", *PASSES[1:]}


def test_the_check_sees_relative_imports() -> None:
    names = set(imported(ROOT / "ir/ops/reshape.py"))
    assert "memc.ir.core.Array" in names and "memc.ir.ops.shared.op_def.OpDef" in names

# SPDX-License-Identifier: Apache-2.0
"""Which tests are run against the faults of a file.

Tests mirror the sources' paths, so a file's tests are the one at its place under tests/unit, those that import its module, and, for
a file that holds a pass, the golden tests that run it and the tests that name it in a pipeline. A file without any has those of
the files that import it, and so on; a file that nothing tests has its folder's. Generated code has its values checked by the
tests of ops, which import no module of code generation: `VALUES` names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MOST = 3
"""Files of pytest's for one file of sources: its own, and those that name most of what the file defines."""

HUBS = ("passes/registry.py", "passes/pipelines.py")
"""Files that import very many others, whose tests say nothing about each."""

OPS = "tests/unit/ir/ops/test_{}.py"

VALUES = {
    "argument_checks": ("tests/unit/runtime/artifact/test_artifact.py",),
    "bf16": (OPS.format("cast"), "tests/unit/runtime/codegen/test_moved_bits.py"),
    "copy_into_box": (OPS.format("scatter"), OPS.format("concat")),
    "exact_arithmetic": ("tests/unit/runtime/codegen/test_cuda_integers.py", OPS.format("unary"), OPS.format("binary")),
    "expressions": (OPS.format("binary"),),
    "copies": ("tests/unit/runtime/execute/test_copies.py",),
    "extrema": (OPS.format("reduce"), OPS.format("arg_reduce"), OPS.format("pool")),
    "float32_functions": (OPS.format("unary"), OPS.format("activation")),
    "integers": ("tests/unit/runtime/codegen/test_cuda_integers.py", OPS.format("binary"), OPS.format("cast")),
    "kernel_table": ("tests/unit/runtime/codegen/test_program.py",),
    "lower_op": (OPS.format("reduce"), OPS.format("conv")),
    "math_functions": (OPS.format("unary"), OPS.format("activation"), OPS.format("binary")),
    "program": ("tests/unit/runtime/codegen/test_row_fusion.py", "tests/unit/runtime/codegen/test_copies.py"),
    "reducers": (OPS.format("reduce"), OPS.format("arg_reduce"), OPS.format("matmul")),
    "routines": (OPS.format("sort"), OPS.format("scatter"), OPS.format("cumulative")),
    "scalar_builder": (OPS.format("scatter"), OPS.format("unary"), OPS.format("binary")),
    "schedule_cpu": (OPS.format("conv"), OPS.format("matmul"), OPS.format("reduce")),
    "te_builder": (OPS.format("gather"), OPS.format("cast"), OPS.format("pad")),
}
"""Tests whose values depend on a file of runtime/codegen, mostly those of ops, by the file's name."""


@dataclass(frozen=True)
class Tests:
    """What is run for a file."""

    pytest: tuple[str, ...]
    golden: tuple[str, ...]

    def parts(self) -> list[Tests]:
        """Each file by itself."""
        return [*(Tests((path,), ()) for path in self.pytest), *(Tests((), (path,)) for path in self.golden)]


def sources(paths: Iterable[str]) -> list[str]:
    """The Python files under `paths`, relative to the root. Raises FileNotFoundError for a path that does not exist."""
    found: set[Path] = set()
    for path in paths:
        whole = ROOT / path
        if not whole.exists():
            raise FileNotFoundError(f"{path}: no such file or folder under {ROOT}")
        found |= set(whole.rglob("*.py")) if whole.is_dir() else {whole}
    return [str(path.relative_to(ROOT)) for path in sorted(found)]


def module_of(path: str) -> str:
    """The name under which a file installs."""
    parts = Path(path).with_suffix("").parts
    parts = parts[1:] if parts[0] == "python" else ("memc", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_texts() -> dict[str, str]:
    """Texts of all tests that may be chosen, by path from the root."""
    folders = [path for top in ("unit", "golden") for path in sorted((ROOT / "tests" / top).rglob("*"))]
    return {str(p.relative_to(ROOT)): p.read_text() for p in folders if p.suffix in (".py", ".memir")}


def tests_of(path: str, texts: Mapping[str, str]) -> Tests:
    """The tests of a file; `texts` has all files under tests/unit and tests/golden."""
    seen, files = {path}, [path]
    while files:
        found = [_own_tests(file, texts) for file in files]
        pytest = tuple(dict.fromkeys(p for own in found for p in own.pytest))
        golden = tuple(dict.fromkeys(p for own in found for p in own.golden))
        if pytest or golden:
            return Tests(pytest[:MOST], golden)
        beside = [p for p in _sources_beside(path) if p not in seen and p not in HUBS]
        files = [p for p in beside if any(_imports(_text(p), file) for file in files)]
        seen.update(files)
    return Tests(tuple(p for p in sorted(texts) if _is_test(p) and Path(p).parent == _place(path).parent), ())


def _own_tests(path: str, texts: Mapping[str, str]) -> Tests:
    """The tests of a file, but not of files that import it: the ones for it first, then by how much they say of it."""
    own = str(_place(path).with_name(f"test_{Path(path).name}"))
    first = [own] if own in texts else []
    if path.startswith("runtime/codegen/"):
        first += VALUES.get(Path(path).stem, ())
    unit = {p: text for p, text in sorted(texts.items()) if _is_test(p) and p not in first}
    words = _definitions(_text(path))
    named = [(-sum(text.count(w) for w in words), p) for p, text in unit.items() if _imports(text, path)]
    passes = _passes(_text(path))
    in_pipelines = [(-_count(text, passes), p) for p, text in unit.items() if passes and _count(text, passes)]
    others = [p for _, p in sorted(named)] + ([p for _, p in sorted(in_pipelines)] if not first else [])
    golden = [p for p, text in texts.items() if p.endswith(".memir") and _runs(text, passes)]
    golden.sort(key=lambda p: (Path(p).stem not in passes, p))
    return Tests(tuple(dict.fromkeys([*first, *others]))[:MOST], tuple(golden))


def _passes(text: str) -> list[str]:
    """Names of the passes that a source file holds."""
    return re.findall(r'^    name: ClassVar\[str\] = "([a-z0-9-]+)"$', text, re.MULTILINE)


def _runs(text: str, passes: Iterable[str]) -> bool:
    """Whether a golden test runs one of `passes` by itself."""
    lines = [line for line in text.splitlines() if line.startswith("// RUN:")]
    return any(re.search(rf"-p \W?(\S*[,\"'])?{re.escape(name)}(?![\w-])", line) for name in passes for line in lines)


def _count(text: str, passes: Iterable[str]) -> int:
    """Times that a test names `passes`, each at the start of a string or after a comma, as in a pipeline."""
    return sum(len(re.findall(rf"[\"',]{re.escape(name)}(?=[\"',{{])", text)) for name in passes)


def _definitions(text: str) -> list[str]:
    return re.findall(r"^(?:def|class) ([A-Za-z]\w+)", text, re.MULTILINE)


def _place(path: str) -> Path:
    """Where the tests of a file are, from the root."""
    file = Path(path)
    return Path("tests/unit") / (file.relative_to("python") if file.parts[0] == "python" else file)


def _is_test(path: str) -> bool:
    """Whether it is a file of tests, but not of those of the whole tree, which a copy of the package would fail."""
    return Path(path).name.startswith("test_") and Path(path).parent != Path("tests/unit")


def _imports(text: str, path: str) -> bool:
    """Whether Python `text` imports the module of `path`."""
    module = module_of(path)
    parent, _, name = module.rpartition(".")
    whole, part = re.escape(module), rf"from {re.escape(parent)} import [^\n]*\b{re.escape(name)}\b"
    return re.search(rf"^\s*(from {whole} import|import {whole}\b|{part})", text, re.MULTILINE) is not None


@cache
def _sources_beside(path: str) -> list[str]:
    """All source files of the repository's folder that holds `path`."""
    return sources([Path(path).parts[0]])


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text()

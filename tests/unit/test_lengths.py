# SPDX-License-Identifier: Apache-2.0
"""Files have at most 350 lines and functions at most 60 beside their docstrings, in Python, C++ and CUDA."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ("ir", "passes", "runtime", "python", "cpp", "scripts", "examples", "benchmarks", "tests")

MOST_IN_FILE = 350
MOST_IN_FUNCTION = 60

EXEMPT = {"runtime/codegen/cuda_kernels/winograd_filter.cuh:Filter": 79}
"""Longer functions, as FILE:FUNCTION, with their lines: a CUDA kernel of which what is left fills the registers, and spills when
more of it becomes functions of their own. They may get shorter, but no longer."""

CPP = {".cc", ".h", ".cu", ".cuh", ".inc"}

TEXT_OR_COMMENT = re.compile(r'R"\((.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*.*?\*/', re.DOTALL)

SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$")
"""What is before the brace of a scope whose functions are counted one by one."""

PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


def sources(suffixes: set[str]) -> list[Path]:
    """The repository's files of these kinds, without what is built."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in suffixes)
    return sorted(path for path in found if "__pycache__" not in path.parts)


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """Each function with its lines, from `def` to its end; of a docstring one line counts, as what it explains may be many."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
            first = node.body[0]
            explained = first.end_lineno - first.lineno if ast.get_docstring(node) and first.end_lineno else 0
            yield node.name, node.end_lineno - node.lineno + 1 - explained


def blanked(text: str) -> str:
    """C++ without comments, strings and the preprocessor's lines, line by line as it was."""
    for pattern in (TEXT_OR_COMMENT, PREPROCESSOR):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return text


def cpp_functions(text: str) -> Iterator[tuple[str, int]]:
    """Each function that lies in no other one with its lines, from its head to its closing brace."""
    text = blanked(text)
    scopes: list[tuple[bool, str, int]] = []
    """Of each open brace: whether functions lie in it, what is before it, and where that begins."""
    since = 0
    for at, character in enumerate(text):
        if character == "{":
            head = text[since:at]
            scopes.append((SCOPE.search(head) is not None, head, since + len(head) - len(head.lstrip())))
        elif character == "}" and scopes:
            is_scope, head, begin = scopes.pop()
            if (
                not is_scope
                and all(outer for outer, _, _ in scopes)
                and (named := re.search(r"(?<!\w)(?!__)([~\w]+)\s*\(", head))
            ):
                yield named.group(1), text.count("\n", begin, at) + 1
        if character in "{};":
            since = at + 1


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file, as FILE:FUNCTION, with its lines."""
    text = path.read_text(encoding="utf-8")
    found = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
    return ((f"{path.relative_to(ROOT).as_posix()}:{name}", lines) for name, lines in found)


def test_no_file_is_too_long() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in sources({".py", *CPP})}
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > MOST_IN_FILE} == {}


def test_no_function_is_too_long() -> None:
    found = (each for path in sources({".py", *CPP}) for each in functions(path))
    assert {name: lines for name, lines in found if lines > EXEMPT.get(name, MOST_IN_FUNCTION)} == {}


def test_what_is_exempt_is_there_and_too_long() -> None:
    found = dict(each for path in sources({".cu", ".cuh"}) for each in functions(path))
    assert all(MOST_IN_FUNCTION < found[name] for name in EXEMPT)


@pytest.mark.parametrize("path", [ROOT / "cpp/kernels/parallel.cc"], ids=lambda path: path.name)
def test_functions_of_files_are_seen(path: Path) -> None:
    names = {name.rpartition(":")[2] for name, _ in functions(path)}
    assert names >= {"AllThreads", "Inside", "RunTasks", "LaunchLoop", "CoresOf", "Threads", "UseThreads", "Launch"}


def test_lines_of_cpp_are_counted_from_head_to_brace() -> None:
    text = """
namespace a {
#define LOOP for (;;) {
// A comment: f() {
struct B {
  B() { x = 1; }
  int x = 0;
};
template <typename T>
int Longest(T a,
            T b) {
  const auto f = [&](int c) {
    return c;
  };
  return f(a) + "}"[0] + '}';
}
}  // namespace a
"""
    assert list(cpp_functions(text)) == [("B", 1), ("Longest", 8)]

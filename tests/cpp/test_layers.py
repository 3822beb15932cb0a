# SPDX-License-Identifier: Apache-2.0
"""Includes go one way in cpp/, and only the exports know tvm-ffi, as what is built for PyTorch alone knows it: the rest can be
built into another library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CPP = Path(__file__).parents[2] / "cpp"
COMMON = "solvers/common"

# What each folder may include besides itself.
MAY_INCLUDE = {
    COMMON: set[str](),
    "solvers/placement": {COMMON},
    "solvers/order": {COMMON},
    "solvers/recompute": {COMMON},
    "solvers/offload": {COMMON, "solvers/recompute"},
    "allocators": set[str](),
    "kernels": set[str](),
    "copies": set[str](),
    "replay": set[str](),
    "replay/rehearsal": {"replay"},
    "cuda": set[str](),
    "verify": set[str](),
    "phantom": set[str](),
    "phantom/headers": set[str](),
    "phantom/headers/crt": set[str](),
    "phantom/torch": set[str](),
    "torch": {"replay"},
    "exports": {
        *("solvers/placement", "solvers/order", "solvers/recompute", "solvers/offload", COMMON),
        *("allocators", "kernels", "copies", "replay", "replay/rehearsal", "cuda", "verify"),
    },
}
# Where others' packages may be included, by how the names of their headers begin.
PACKAGES = {"exports": ("tvm/ffi/",), "phantom/torch": ("ATen/", "c10/"), "torch": ("c10/",)}
SOURCES = sorted(p for p in CPP.rglob("*") if p.suffix in (".cc", ".h", ".inc"))
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path: Path) -> str:
    return str(path.parent.relative_to(CPP))


def wrong_includes(folder: str, text: str) -> list[str]:
    wrong = []
    for bracket, name in INCLUDE.findall(text):
        if bracket == "<":
            system = "/" not in name or name.startswith("sys/")
            fine = system or name.startswith(PACKAGES.get(folder, ()))
        else:
            owner = str(Path(name).parent)
            fine = owner in (folder, ".") or owner in MAY_INCLUDE[folder]
        if not fine:
            wrong.append(name)
    return wrong


def test_every_folder_has_its_place() -> None:
    assert {folder_of(p) for p in SOURCES} == set(MAY_INCLUDE)


@pytest.mark.parametrize("folder", MAY_INCLUDE)
def test_includes_go_one_way(folder: str) -> None:
    found = {str(p.relative_to(CPP)): wrong_includes(folder, p.read_text()) for p in SOURCES if folder_of(p) == folder}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_what_is_refused() -> None:
    text = '#include <tvm/ffi/function.h>\n#include "solvers/order/order.h"\n#include <vector>\n#include "kernels/blas.h"\n'
    assert wrong_includes("kernels", text) == ["tvm/ffi/function.h", "solvers/order/order.h"]
    assert wrong_includes("exports", text) == []
    assert wrong_includes(COMMON, text) == ["tvm/ffi/function.h", "solvers/order/order.h", "kernels/blas.h"]

# SPDX-License-Identifier: Apache-2.0
"""What of memc, and of what it works with, is installed here: `memc doctor`. Nothing is raised for what is missing: it is told."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Literal

from memc.ir.errors import MemcError
from memc.ir.files import cache_folder
from memc.ir.machine import device_names, memory_bytes
from memc.ir.sizes import format_size

State = Literal["ok", "missing", "broken"]

REINSTALL = "pip install --force-reinstall memc"

DRIVER = "libcuda.so.1"

PURPOSES = {
    "cuda": "running on an NVIDIA GPU",
    "torch": "planned memory in PyTorch",
    "verify": "memc verify against onnxruntime",
    "report": "memc report --png",
}
"""Of the extras that are told of: what they are for."""


@dataclass(frozen=True)
class Finding:
    """One thing that is there or not."""

    name: str
    state: State
    detail: str
    purpose: str = ""
    """What it is for; empty for what everything needs."""
    remedy: str = ""
    """What to type where it is not there; empty where nothing helps."""

    @property
    def needed(self) -> bool:
        """Whether nothing works without it."""
        return not self.purpose


def examine() -> list[Finding]:
    """What is installed. Takes about a second: the native library is loaded, TVM is not."""
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _packages, _native, _gpu, _extras, _tools, _storage)
    return [finding for part in parts for finding in part()]


def is_sound(findings: list[Finding]) -> bool:
    """Whether all is there that everything needs."""
    return all(finding.state == "ok" or not finding.needed for finding in findings)


def to_dict(findings: list[Finding]) -> dict[str, Any]:
    """For JSON."""
    return {"sound": is_sound(findings), "findings": [{**asdict(each), "needed": each.needed} for each in findings]}


def _python() -> Iterator[Finding]:
    system = f"{platform.system().lower()}-{platform.machine()}"
    fits = sys.version_info >= (3, 10)
    yield Finding(
        "Python",
        "ok" if fits else "broken",
        f"{platform.python_version()} on {system}",
        "",
        "" if fits else "install Python 3.10 or newer",
    )
    try:
        yield Finding("memc", "ok", version("memc"))
    except PackageNotFoundError:
        yield Finding("memc", "broken", "its metadata is not installed", "", REINSTALL)


def _packages() -> Iterator[Finding]:
    """What memc requires, as its metadata has it; only what is not as it says."""
    wrong = 0
    needed = [each for each in _requirements() if not each[1]]
    for text, _ in needed:
        state, detail = _installed(text)
        if state != "ok":
            wrong += 1
            yield Finding(_name(text), state, detail, "", f"pip install '{text}'")
    if not wrong:
        yield Finding("packages", "ok", f"all {len(needed)} that memc requires, with TVM {_version('apache-tvm')}")


def _requirements() -> list[tuple[str, str]]:
    """Requirements with the extras that ask for them; empty text for those of memc itself."""
    try:
        found = requires("memc") or []
    except PackageNotFoundError:
        return []
    split = (text.partition(";") for text in found)
    return [(text.strip(), (re.findall(r"extra\s*==\s*['\"]([\w-]+)", rest) or [""])[0]) for text, _, rest in split]


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _installed(requirement: str) -> tuple[State, str]:
    """Whether a requirement is met, and what there is. Without the package `packaging` any version does."""
    found = _version(_name(requirement))
    if found is None:
        return "missing", "not installed"
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return "ok", found
    if Requirement(requirement).specifier.contains(found, prereleases=True):
        return "ok", found
    return "broken", f"{found}, where {requirement} is required"


def _native() -> Iterator[Finding]:
    from memc import native

    try:
        native.load()
        kernels = native.kernel_names()
        cpu, cuda = (sum(name.startswith(f"memc.{kind}.") for name in kernels) for kind in ("cpu", "cuda"))
        yield Finding("native library", "ok", f"{cpu} functions for the CPU, {cuda} for CUDA; {native.library_path()}")
    except Exception as error:  # Of the loader, or of a library of another version.
        yield Finding("native library", "broken", " ".join(str(error).split())[:200], "", REINSTALL)
    try:
        yield Finding("OpenBLAS", "ok", str(native.openblas_path()), "products on the CPU")
    except (ImportError, OSError) as error:
        yield Finding("OpenBLAS", "missing", str(error), "products on the CPU", "pip install scipy-openblas32")


def _gpu() -> Iterator[Finding]:
    purpose = PURPOSES["cuda"]
    names = device_names("cuda")
    if names:
        yield Finding("GPU", "ok", ", ".join(names), purpose)
    else:
        yield Finding(
            "GPU", "missing", "none that the NVIDIA driver tells of; compiling for cuda and planning need none", purpose
        )
    try:
        ctypes.CDLL(os.environ.get("MEMC_CUDA_DRIVER") or DRIVER)
        yield Finding("CUDA driver", "ok", DRIVER, purpose)
    except OSError:
        remedy = "install NVIDIA's driver for CUDA 13" if names else ""
        yield Finding("CUDA driver", "missing", f"{DRIVER} cannot be loaded", purpose, remedy)


def _extras() -> Iterator[Finding]:
    """The packages of the extras."""
    known = _requirements()
    for extra, purpose in PURPOSES.items():
        texts = [text for text, asks in known if asks == extra]
        states = [(_name(text), *_installed(text)) for text in texts]
        absent = [
            f"{name} ({detail})" if state == "broken" else name for name, state, detail in states if state != "ok"
        ]
        if not texts:
            yield Finding(
                f"memc[{extra}]", "missing", "this memc has no such extra", purpose, "pip install --upgrade memc"
            )
        elif absent:
            yield Finding(
                f"memc[{extra}]", "missing", f"without {', '.join(absent)}", purpose, f"pip install 'memc[{extra}]'"
            )
        else:
            yield Finding(f"memc[{extra}]", "ok", ", ".join(f"{name} {found}" for name, _, found in states), purpose)


def _tools() -> Iterator[Finding]:
    """Programs, and the Python that scripts of PyTorch's run in."""
    from memc.estimation.phantom.installation import find_installation

    compiler = shutil.which("c++") or shutil.which("g++")
    builds = "memc estimate of scripts, and planned memory in PyTorch, which are built on first use"
    if compiler is not None:
        yield Finding("C++ compiler", "ok", compiler, builds)
    else:
        yield Finding("C++ compiler", "missing", "no c++ in PATH", builds, "apt-get install g++")
    try:
        found = find_installation(None)
        yield Finding("PyTorch for scripts", "ok", f"{found.version} of {found.python}", "memc estimate of scripts")
    except MemcError as error:
        what, _, remedy = str(error).partition("; ")
        yield Finding("PyTorch for scripts", "missing", what, "memc estimate of scripts", remedy)


def _storage() -> Iterator[Finding]:
    there = memory_bytes()
    if there is not None:
        yield Finding("memory", "ok", format_size(there), "running models")
    folder = cache_folder()
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    purpose = "keeping compiled kernels"
    if os.access(parent, os.W_OK):
        yield Finding("cache", "ok", str(folder), purpose)
    else:
        yield Finding("cache", "broken", f"{parent} cannot be written to", purpose, "export XDG_CACHE_HOME=FOLDER")

# SPDX-License-Identifier: Apache-2.0
"""The phantom device's libraries, built once for each installation of PyTorch and kept in the user's cache."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memc.compilers import Done, run_side_by_side
from memc.ir.errors import UnsupportedError
from memc.ir.files import cache_folder

from .elf import dynamic_symbols
from .installation import Installation
from .symbols import Stubs, stub_source, stubs

MAIN = "libmemc_phantom.so"
TRACKER = "libmemc_phantom_torch.so"

REPLACED = ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnvrtc.so.13")
"""Libraries that the phantom device stands for altogether: PyTorch does not load them. cuDNN, which looks for cuBLASLt, plans
with all its engines only where one is there that needs no driver."""

ABSENT = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The driver's libraries, which come with no package."""


@dataclass(frozen=True)
class Libraries:
    """What was built."""

    folder: Path

    @property
    def preload(self) -> str:
        """For LD_PRELOAD. The main library comes first, so that its functions are found first."""
        return ":".join(str(self.folder / name) for name in (MAIN, *REPLACED, *ABSENT))

    @property
    def tracker(self) -> Path:
        """What the process of the script loads once PyTorch is there."""
        return self.folder / TRACKER


def source_folder() -> Path:
    """The folder of the sources, in a wheel and in a clone."""
    installed = Path(__file__).parents[2] / "cpp" / "phantom"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[4] / "cpp" / "phantom"


def libraries(installed: Installation) -> Libraries:
    """The libraries for an installation, from the cache or built now (some 20 s).

    Raises UnsupportedError without a C++ compiler, for a PyTorch that needs what the phantom device does not know, and for sources
    that do not compile with its headers.
    """
    folder = cache_folder() / f"phantom-{installed.version}-{_fingerprint(installed)}"
    if any(mark in str(folder) for mark in " :"):  # Which separate names in LD_PRELOAD.
        raise UnsupportedError(
            f"{folder.parent}: expected a folder without spaces and colons for the phantom device's libraries; set XDG_CACHE_HOME to one"
        )
    if (folder / TRACKER).is_file():
        return Libraries(folder)
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        place = tempfile.mkdtemp(prefix="phantom-", dir=folder.parent)
    except OSError as error:
        raise UnsupportedError(
            f"{folder.parent}: cannot keep the phantom device's libraries: {error.strerror}"
        ) from None
    try:
        _build(installed, Path(place))
        with suppress(OSError):  # Another process was faster.
            os.rename(place, folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Libraries(folder)


def _fingerprint(installed: Installation) -> str:
    found = hashlib.sha256(f"{installed.torch} {installed.version}".encode())
    for path in sorted(source_folder().rglob("*.*")) + [Path(__file__), Path(__file__).parent / "symbols.py"]:
        found.update(path.read_bytes() if path.is_file() else b"")
    for library in installed.libraries:
        found.update(f"{library.name} {library.stat().st_size}".encode())
    return found.hexdigest()[:16]


@functools.cache
def _compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise UnsupportedError(
        "phantom device: expected a C++ compiler, with which it is built once, got none; install g++, or name one with CXX"
    )


def _run(arguments: list[str]) -> None:
    run_side_by_side([arguments], _check)


def _check(done: Done) -> None:
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        raise UnsupportedError(f"phantom device: it cannot be built: {lines[0] if lines else 'the compiler failed'}")


def _build(installed: Installation, folder: Path) -> None:
    """Compile all sources side by side, and link them."""
    sources = source_folder()
    common = [
        _compiler(),
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        f"-I{sources}",
        f"-I{sources / 'headers'}",
    ]
    cuda = [f"-I{path}" for path in installed.includes]
    torch = [f"-I{installed.torch / 'include'}", f"-I{installed.torch / 'include/torch/csrc/api/include'}"]
    jobs = [
        [*common, *cuda, "-c", str(path), "-o", str(folder / f"{path.stem}.o")] for path in sorted(sources.glob("*.cc"))
    ]
    tracker = sources / "torch/tracker.cc"
    jobs.insert(0, [*common, *cuda, *torch, "-c", str(tracker), "-o", str(folder / "tracker.object")])
    run_side_by_side(jobs, _check)
    objects = sorted(map(str, folder.glob("*.o")))
    shared = [_compiler(), "-shared", "-Wl,-rpath,$ORIGIN", f"-L{folder}"]
    main = folder / MAIN
    _run([*shared, "-o", str(main), f"-Wl,-soname,{MAIN}", *objects, "-ldl"])
    generated = folder / "stubs.cc"
    generated.write_text(stub_source(_stubs(installed, main)))
    _run([*common, "-Wno-builtin-declaration-mismatch", "-c", str(generated), "-o", str(folder / "stubs.o")])
    _run([*shared, "-o", str(main), f"-Wl,-soname,{MAIN}", *objects, str(folder / "stubs.o"), "-ldl"])
    empty = folder / "empty.cc"
    empty.write_text("")
    for name in (*REPLACED, *ABSENT):
        link = [*shared, "-o", str(folder / name), f"-Wl,-soname,{name}", str(empty)]
        _run([*link, "-Wl,--no-as-needed", f"-l:{MAIN}"])
    tracking = [str(folder / "tracker.object"), f"-L{installed.torch / 'lib'}", "-lc10", "-lc10_cuda", "-ltorch_cpu"]
    _run([*shared, "-o", str(folder / TRACKER), *tracking, f"-l:{MAIN}"])


def _stubs(installed: Installation, main: Path) -> Stubs:
    needed: set[str] = set()
    for path in installed.libraries:
        needed |= dynamic_symbols(path).undefined
    offered: set[str] = set()
    for name in REPLACED:
        offered |= dynamic_symbols(installed.cuda_library(name)).defined
    return stubs(needed, offered, dynamic_symbols(main).defined, f"PyTorch {installed.version}")

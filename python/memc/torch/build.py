# SPDX-License-Identifier: Apache-2.0
"""The library that stands in front of PyTorch's allocator, built once for each installation of PyTorch and kept in the user's cache.

Its classes are PyTorch's own C++ ones, whose layout changes from one minor version to the next: so it is built with the headers that
come with the installed PyTorch. That takes a C++ compiler and some seconds, and no CUDA toolkit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from memc.compilers import Done, run_side_by_side
from memc.ir.errors import UnsupportedError
from memc.ir.files import cache_folder

VARIABLE = "MEMC_TORCH_ALLOCATOR"
"""Names a library built elsewhere, for a machine without a compiler."""

NAME = "libmemc_torch.so"
_WHAT = "memc.torch.planned_memory"


def built_for() -> str:
    """The PyTorch that a library must be built for."""
    return f"{torch.__version__} {torch.version.git_version}"


def source_folder() -> Path:
    """The folder of C++ sources, in a wheel and in a clone."""
    installed = Path(__file__).parents[1] / "cpp"
    return installed if (installed / "torch").is_dir() else Path(__file__).resolve().parents[3] / "cpp"


def allocator_library() -> Path:
    """The library for the installed PyTorch: the one that MEMC_TORCH_ALLOCATOR names, one from the cache, or built now.

    Raises UnsupportedError for a PyTorch without CUDA, without a C++ compiler or CUDA's headers, and for sources that do not compile
    with this PyTorch's headers.
    """
    if torch.version.cuda is None:
        raise UnsupportedError(
            f"{_WHAT}: expected PyTorch with CUDA, got {torch.__version__}; install a CUDA build of PyTorch"
        )
    if given := os.environ.get(VARIABLE):
        if not Path(given).is_file():
            raise UnsupportedError(f"{VARIABLE}: expected the path of {NAME}, got {given}, which is no file; unset it")
        return Path(given)
    path = cache_folder() / f"torch-{torch.__version__}-{_fingerprint()}" / NAME
    if path.is_file():
        return path
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.mkdtemp(prefix="torch-", dir=path.parent.parent)
    except OSError as error:
        raise UnsupportedError(f"{path.parent.parent}: cannot keep {NAME}: {error.strerror}") from None
    try:
        build(Path(place))
        with suppress(OSError):  # Another process was faster.
            os.rename(place, path.parent)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return path


def build(folder: Path) -> Path:
    """Build the library in a folder. Raises UnsupportedError as `allocator_library`."""
    sources = source_folder()
    torch_folder = Path(torch.__file__).parent
    compiler = _compiler()
    common = [
        *(compiler, "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-DNDEBUG"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f'-DMEMC_TORCH_BUILT_FOR="{built_for()}"',
        *(f"-I{sources}", f"-I{sources / 'phantom/headers'}", f"-I{torch_folder / 'include'}", f"-I{_cuda_headers()}"),
    ]
    paths = sorted((sources / "torch").glob("*.cc"))
    objects = [str(folder / f"{path.stem}.o") for path in paths]
    jobs = [[*common, "-c", str(path), "-o", made] for path, made in zip(paths, objects)]
    run_side_by_side(jobs, _check)
    library = folder / NAME
    libraries = torch_folder / "lib"
    # CUDA's runtime is not named: PyTorch has loaded the one that it goes with. Nor is libmemc_core, which is loaded by its path.
    _run([compiler, "-shared", "-o", str(library), *objects, f"-L{libraries}", "-lc10", "-lc10_cuda"])
    for each in objects:
        os.unlink(each)
    return library


def _fingerprint() -> str:
    found = hashlib.sha256(f"{built_for()} {Path(torch.__file__).parent}".encode())
    sources = source_folder()
    for name in ("torch", "phantom/headers"):
        for path in sorted(path for path in (sources / name).rglob("*") if path.suffix in (".h", ".cc")):
            found.update(path.read_bytes())
    found.update((sources / "replay/replay.h").read_bytes())
    found.update(Path(__file__).read_bytes())
    return found.hexdigest()[:16]


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise UnsupportedError(
        f"{_WHAT}: expected a C++ compiler, with which {NAME} is built once for PyTorch {torch.__version__}, got none; install g++, "
        f"name a compiler with CXX, or a library built on another machine with {VARIABLE}"
    )


def _cuda_headers() -> Path:
    """The folder of cuda_runtime_api.h: of the package beside PyTorch, or of a toolkit."""
    site = Path(torch.__file__).parents[1] / "nvidia"
    major = str(torch.version.cuda).split(".")[0]
    places = [site / f"cu{major}", site / "cuda_runtime", *_toolkits()]
    for folder in places:
        if (folder / "include/cuda_runtime_api.h").is_file():
            return folder / "include"
    raise UnsupportedError(
        f"{_WHAT}: expected cuda_runtime_api.h beside PyTorch or in CUDA_HOME, got none; pip install nvidia-cuda-runtime, "
        f"or name a library built on another machine with {VARIABLE}"
    )


def _toolkits() -> Sequence[Path]:
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    return [Path(name) for name in (*named, "/usr/local/cuda") if name]


def _run(arguments: list[str]) -> None:
    run_side_by_side([arguments], _check)


def _check(done: Done) -> None:
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        raise UnsupportedError(
            f"{_WHAT}: {NAME} cannot be built for PyTorch {torch.__version__}: {lines[0] if lines else 'the compiler failed'}"
        )

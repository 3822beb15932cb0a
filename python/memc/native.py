# SPDX-License-Identifier: Apache-2.0
"""Finds and loads `libmemc_core`, the native part of memc, and tells it where OpenBLAS, cuDNN and cuBLASLt are."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

import tvm_ffi

import memc

_NAME = "libmemc_core.so"


@functools.cache
def library_path() -> Path:
    """The library beside the package (in an editable install, beside its installed half).

    Raises FileNotFoundError if it was not built.
    """
    for folder in memc.__path__:
        path = Path(folder) / _NAME
        if path.is_file():
            return path
    raise FileNotFoundError(f"{_NAME} is not in {', '.join(memc.__path__)}; install memc with pip, or build it")


@functools.cache
def openblas_path() -> Path:
    """The OpenBLAS library of the `scipy-openblas32` wheel. Raises ImportError where that is not installed."""
    import scipy_openblas32

    return Path(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))


@functools.cache
def cuda_paths() -> tuple[str, str, str]:
    """cuDNN, cuBLASLt and the CUDA driver: what MEMC_CUDNN, MEMC_CUBLASLT and MEMC_CUDA_DRIVER name, else the libraries of
    NVIDIA's wheels; empty where the system's loader is to look."""
    return (
        os.environ.get("MEMC_CUDNN") or _in_wheel("cudnn/lib/libcudnn.so.9"),
        os.environ.get("MEMC_CUBLASLT") or _in_wheel("cu13/lib/libcublasLt.so.13"),
        os.environ.get("MEMC_CUDA_DRIVER", ""),
    )


def _in_wheel(path: str) -> str:
    """The file below the package that NVIDIA's wheels share; empty if it is not there."""
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if Path(folder, path).is_file():
            return str(Path(folder, path))
    return ""


def function(name: str) -> Any:
    """What the library registers under a name, such as `memc.replay.stats`."""
    load()
    return tvm_ffi.get_global_func(name)


@functools.cache
def load() -> Any:
    """The library as a tvm-ffi module. Loading it registers its kernels (`memc.cpu.*`, `memc.cuda.*`)."""
    for error in (OverflowError, MemoryError, InterruptedError):  # C++ errors of these kinds arrive as themselves.
        tvm_ffi.register_error(error.__name__, error)
    library = tvm_ffi.load_module(str(library_path()), keep_module_alive=True)
    try:
        tvm_ffi.get_global_func("memc.cpu.set_blas")(os.fspath(openblas_path()))
    except ImportError:  # Planning and CUDA do without; the CPU kernels say what they miss.
        pass
    tvm_ffi.get_global_func("memc.cuda.set_libraries")(*cuda_paths())
    return library


def kernel_names() -> list[str]:
    """Names of all that the library registers, once it is loaded."""
    load()
    return sorted(name for name in tvm_ffi.registry.list_global_func_names() if name.startswith("memc."))

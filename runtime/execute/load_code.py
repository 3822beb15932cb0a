# SPDX-License-Identifier: Apache-2.0
"""From an artifact's folder to its code, ready to run: this machine, its device and libraries are checked on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memc.ir.errors import InvalidError, NoDeviceError, UnsupportedError, UsageError
from memc.ir.spaces import DeviceId
from memc.runtime.artifact.manifest import IMAGE, LIBRARY, PLAN, Manifest
from memc.runtime.artifact.plan_text import difference
from memc.runtime.artifact.read import content
from memc.runtime.cuda import cuda_runtime
from memc.runtime.execute import forks
from memc.runtime.execute.device_errors import device_errors
from memc.runtime.host_cpu import missing_flags, platform_name


@dataclass(frozen=True)
class Loaded:
    """An artifact's code on a device."""

    manifest: Manifest
    devices: tuple[Any, ...]
    """TVM's, in the order of the manifest."""
    library: Any
    """The module of model.so."""
    cuda_graph: bool
    """Whether runs on CUDA are launched as graphs."""
    has_native: bool
    """Whether memc's library is there, without which TVM's runtime alone runs most artifacts."""

    @property
    def device(self) -> Any:
        """The device that runs the kernels."""
        return self.devices[0]

    def device_of(self, space: str) -> Any:
        """TVM's device of a space."""
        return self.devices[self.manifest.devices.index(self.manifest.space(space).device)]

    def virtual_machine(self) -> Any:
        """A new virtual machine over the code: it runs one call at a time, several may run at once. Raises InvalidError for
        a damaged file."""
        from tvm.runtime import vm

        with _loading(self.manifest, self.device):
            return vm.VirtualMachine(self.library, list(self.devices))


def open_artifact(manifest: Manifest, cuda_graph: bool) -> Loaded:
    """Load the code. Raises InvalidError for a damaged file, and UnsupportedError if this machine cannot run it."""
    check_machine(manifest)
    forks.require_device(manifest)
    tvm = import_tvm(manifest)
    import tvm_ffi

    devices = tuple(tvm.device(device.kind, device.index) for device in manifest.devices)
    device = devices[0]
    for wanted, found in zip(manifest.devices, devices):
        if wanted.kind != "cpu" and not found.exist:
            raise no_device(manifest, wanted)
    check_device(manifest, device)
    load_kernel_library(manifest)
    has_native = load_native()
    # A copy, mapped and then deleted: the system's loader takes a path that it has seen for the library that it found
    # there then, although the artifact was compiled again.
    code = content(manifest, LIBRARY)
    with _loading(manifest, device), tempfile.TemporaryDirectory(prefix="memc-") as folder:
        copy = Path(folder) / LIBRARY
        copy.write_bytes(code)
        # Unloaded with the last of its executables; on CUDA never, where its kernels may still run then.
        library = tvm_ffi.load_module(str(copy), keep_module_alive=manifest.kind == "cuda")
    loaded = Loaded(manifest, devices, library, cuda_graph, has_native)
    require_interface(loaded)
    return loaded


def require_interface(loaded: Loaded) -> None:
    """Raise InvalidError unless the plan says of sizes, inputs, outputs and weights what the code was compiled for: it
    would read and write past their ends."""
    manifest, virtual_machine = loaded.manifest, loaded.virtual_machine()
    try:
        wrong = difference(str(virtual_machine["interface"]()), manifest.interface)
    except (ValueError, KeyError, AttributeError, TypeError, RuntimeError):
        raise InvalidError(f"{manifest.path / LIBRARY}: does not say what it needs; compile again") from None
    if wrong is not None:
        raise InvalidError(f"{manifest.path / PLAN}: is not of this {LIBRARY}: {wrong}; compile again")


def load_native() -> bool:
    """Load memc's library, by which loops of code that is loaded from now on run in forked children, too. Returns whether it
    is there."""
    import tvm_ffi

    try:
        from memc import native

        native.load()
    except (ImportError, OSError):
        return False
    tvm_ffi.get_global_func("memc.cpu.serve_loops")()
    return True


@contextmanager
def _loading(manifest: Manifest, device: Any) -> Iterator[None]:
    """Errors in here are the device's, or mean that the file is damaged."""
    try:
        with device_errors(manifest, device, "loading"):
            yield
    except (OSError, RuntimeError, ValueError) as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidError(f"{manifest.path / LIBRARY}: cannot be loaded: {text[-1]}") from None


def check_machine(manifest: Manifest) -> None:
    if manifest.platform != platform_name():
        raise UnsupportedError(
            f"{manifest.path}: compiled for {manifest.platform}, this is {platform_name()}; compile again"
        )
    missing = missing_flags(manifest.cpu, manifest.cpu_flags)
    if missing:
        raise UnsupportedError(
            f"{manifest.path}: compiled for CPU {manifest.cpu}, this one lacks {', '.join(missing)}; compile for it "
            "with --mcpu"
        )


def import_tvm(manifest: Manifest) -> Any:
    """TVM, with its CUDA runtime where the artifact needs that."""
    import tvm

    if manifest.kind == "cuda":
        try:
            cuda_runtime.load()
        except OSError as error:
            raise NoDeviceError(f"{manifest.path}: needs a CUDA driver, which does not load: {error}") from None
    return tvm


def no_device(manifest: Manifest, wanted: DeviceId) -> NoDeviceError:
    """The error for a device that this machine does not have."""
    cuda_runtime.clear_error()
    what = "CUDA device" if wanted.index == 0 else f"device {wanted}"
    compiled = f"compiled for {manifest.kind} {manifest.arch}".rstrip()
    return NoDeviceError(f"{manifest.path}: {compiled}, this machine has no {what}; compile with --target llvm")


def check_device(manifest: Manifest, device: Any) -> None:
    """Raise UsageError or UnsupportedError for a device that cannot run the kernels, or not now."""
    if manifest.kind != "cuda":
        return
    if cuda_runtime.captured_stream(device) is not None:
        raise UsageError(f"{manifest.path}: cannot be loaded while a CUDA graph is being captured; load it before")
    built = manifest.arch.removeprefix("sm_").rstrip("af")
    wanted, have = (int(built[:-1]), int(built[-1])), tuple(int(n) for n in str(device.compute_version).split("."))
    if wanted[0] != have[0] or wanted[1] > have[1]:
        found = f"sm_{have[0]}{have[1]}"
        raise UnsupportedError(
            f"{manifest.path}: compiled for {manifest.arch}, the device is {found}; use --arch {found}"
        )


OWN_CALLS = frozenset(f"memc.cuda.{name}" for name in ("top_k", "sort_ranks", "rank_positions", "cumsum", "cumprod"))
"""Calls of memc's own CUDA kernels alone."""


def calls_cuda(manifest: Manifest) -> bool:
    """Whether the artifact calls cuDNN or cuBLASLt."""
    return any(s.startswith("memc.cuda.") and s not in OWN_CALLS for s in manifest.library_functions)


def load_kernel_library(manifest: Manifest) -> None:
    """Register the kernels the artifact calls: those of libmemc_core and of the libraries that it loads."""
    if not manifest.library_functions:
        return
    import tvm_ffi

    try:
        from memc import native

        native.load()
    except (ImportError, OSError) as error:
        raise UnsupportedError(f"{manifest.path}: needs memc's kernel library, which does not load: {error}") from None
    for symbol in manifest.library_functions:
        if tvm_ffi.get_global_func(symbol, allow_missing=True) is None:
            raise UnsupportedError(f"{manifest.path}: needs {symbol}, which this version of memc does not have")
    if calls_cuda(manifest):
        try:
            tvm_ffi.get_global_func("memc.cuda.load")()
        except RuntimeError as error:
            raise UnsupportedError(f"{manifest.path}: {str(error).strip().splitlines()[-1]}") from None
    if any(symbol.startswith("memc.cuda.") for symbol in manifest.library_functions):
        add_own_kernels(manifest)


def add_own_kernels(manifest: Manifest) -> None:
    """Load the artifact's own kernels, which attention takes, and calls of the CUDA libraries may."""
    import tvm_ffi

    path = manifest.path / IMAGE
    if not path.is_file():
        return
    image = content(manifest, IMAGE)
    try:
        tvm_ffi.get_global_func("memc.cuda.add_kernels")(0, image)
    except RuntimeError as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidError(f"{path}: cannot be loaded: {text[-1]}; compile again") from None

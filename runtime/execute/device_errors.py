# SPDX-License-Identifier: Apache-2.0
"""What a device's failures mean: errors of TVM, the CUDA driver and its libraries as typed ones that say what to do."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from memc.ir.errors import DeviceError, DeviceMemoryError, LaunchError, NoDeviceError
from memc.ir.sizes import format_size
from memc.runtime.artifact.manifest import Manifest
from memc.runtime.cuda import cuda_runtime

NO_MEMORY = re.compile("out of memory|OUT_OF_MEMORY|MemoryAllocation|ALLOC_FAILED|std::bad_alloc")
DEVICE = re.compile("CUDA|cuda|CUDNN|CUBLAS")
NO_DEVICE = re.compile(
    "NO_?DEVICE|no CUDA-capable device|InsufficientDriver|DEVICE_?UNAVAILABLE|DevicesUnavailable", re.I
)
LAUNCH = re.compile(
    "launch|illegal|misaligned|ecc_?uncorrectable|assert|execution_failed|invalid_?image|no_?binary|NoKernelImage|"
    "hardware_?stack",
    re.IGNORECASE,
)
"""What the messages of each kind of failure hold: names of error codes of the CUDA runtime and driver, of cuDNN and
cuBLASLt, or their words."""


class device_errors:
    """A context in which failures of the device become `DeviceError`s; other errors pass. The thread's current device is the
    given one meanwhile, and nothing of a failure is left to other users of CUDA.

    `doing` says in a few words what failed. A class, because every run enters one.
    """

    def __init__(self, manifest: Manifest, device: Any, doing: str) -> None:
        self.manifest = manifest
        self.device = device
        self.doing = doing

    def __enter__(self) -> None:
        if self.manifest.kind == "cuda":
            self.before = cuda_runtime.current_device()
            if self.before != self.device.index:
                cuda_runtime.set_device(self.device.index)

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            if isinstance(error, (RuntimeError, MemoryError)):
                text = "std::bad_alloc" if isinstance(error, MemoryError) else str(error)
                found = explained(text, self.manifest, self.device, self.doing)
                if found is not None:
                    raise found from error
        finally:
            if self.manifest.kind == "cuda":
                if error is not None:
                    cuda_runtime.clear_error()
                if self.before != self.device.index:
                    cuda_runtime.set_device(self.before)


def explained(text: str, manifest: Manifest, device: Any, doing: str) -> DeviceError | None:
    """The typed error of a message; None if it is not about a device."""

    said = " ".join(text.split())
    if NO_MEMORY.search(text):
        return no_memory(said, manifest, device, doing)
    if not DEVICE.search(text):
        return None
    where = f"{manifest.path}: {doing}"
    if NO_DEVICE.search(text):
        return NoDeviceError(f"{where}: no usable CUDA device ({said}); look at nvidia-smi and CUDA_VISIBLE_DEVICES")
    if LAUNCH.search(text):
        return LaunchError(
            f"{where}: the device broke off a kernel ({said}); start a new process, which the device may need now, and "
            "please report it; memc bench --profile or CUDA_LAUNCH_BLOCKING=1 shows which op, and compiling with "
            "--kernels generated may avoid it"
        )
    return DeviceError(f"{where}: the device failed ({said}); start a new process, which the device may need now")


def no_memory(said: str, manifest: Manifest, device: Any, doing: str) -> DeviceMemoryError:
    """What the artifact needs, what there is, and what to do about it."""
    needs = manifest.footprint.text(format_size)
    return DeviceMemoryError(
        f"{manifest.path}: {doing}: out of memory{_of(manifest, device)} ({said}); it needs {needs}; free memory that "
        "others hold, or compile for a smaller batch or with --memory-budget"
    )


def _of(manifest: Manifest, device: Any) -> str:
    """How large a GPU's memory is and what of it is free; empty where that is not known."""
    if manifest.kind != "cuda":
        return ""
    try:
        total, free = int(device.total_global_memory), int(device.available_global_memory)
    except (RuntimeError, TypeError):  # A device that has failed fails in every call.
        return ""
    return f" of a device with {format_size(total)}, {format_size(free)} of it free"

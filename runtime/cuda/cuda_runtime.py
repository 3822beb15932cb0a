# SPDX-License-Identifier: Apache-2.0
"""What memc shares with other users of CUDA in the process: the runtime's last error, its current device, and streams
that are being captured.

Each copy of the CUDA runtime in a process has errors of its own; the one here is that of TVM's CUDA library, which is
PyTorch's, too, where both load the same file.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memc.ir.errors import UsageError

CAPTURE_IMPLICIT = 906
"""cudaErrorStreamCaptureImplicit: the default stream would have to wait for a stream that is being captured."""

CAPTURE_RELAXED = 2
"""cudaStreamCaptureModeRelaxed"""

_loaded: list[ctypes.CDLL] = []


def load() -> None:
    """Load TVM's CUDA library. Raises OSError without a driver."""
    import tvm

    if not _loaded:
        path = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
        _loaded.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL))


def library() -> ctypes.CDLL:
    """The loaded library, through which the runtime's functions are found."""
    return _loaded[0]


def clear_error() -> None:
    """Take back the error of a failed call that is dealt with: the next user of the runtime would take it for his own."""
    for library in _loaded:  # Its functions are those of the runtime that the library depends on.
        library.cudaGetLastError()


def current_device() -> int:
    """The number of this thread's device."""
    number = ctypes.c_int(0)
    for library in _loaded:
        library.cudaGetDevice(ctypes.byref(number))
    return number.value


def set_device(number: int) -> None:
    """Make it this thread's device."""
    for library in _loaded:
        library.cudaSetDevice(number)


def synchronize_device() -> None:
    """Wait for all work on this thread's device."""
    mode = ctypes.c_int(CAPTURE_RELAXED)
    for library in _loaded:  # Allowed while others capture their streams.
        library.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        library.cudaDeviceSynchronize()
        library.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def captured_stream(device: Any) -> int | None:
    """The stream that this thread enqueues on while it is captured into a CUDA graph: TVM's current one, or that of PyTorch
    or CuPy, where they are loaded. None if none is.

    Raises UsageError if the work would go to the default stream while another is captured, which it would break.
    """
    import tvm_ffi

    own = int(tvm_ffi.get_raw_stream(device))
    streams = [own, *(stream for find in (_of_torch, _of_cupy) if (stream := find(device)) is not None)]
    found = [_capture_status(stream) for stream in streams]
    for stream, (error, status) in zip(streams, found):
        if not error and status:
            return stream
    if any(error == CAPTURE_IMPLICIT for error, _ in found):
        clear_error()
        raise UsageError(
            "a stream is being captured into a CUDA graph, but this thread's work goes to the default stream; make the "
            "captured one current (torch.cuda.stream, tvm_ffi.use_raw_stream)"
        )
    return None


def _capture_status(stream: int) -> tuple[int, int]:
    """The error of asking whether a stream is captured, and the answer: 0 for no."""
    status = ctypes.c_int(0)
    for library in _loaded:
        return int(library.cudaStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))), status.value
    return 0, 0


def _of_torch(device: Any) -> int | None:
    """PyTorch's current stream, if it uses CUDA."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        return int(torch.cuda.current_stream(device.index).cuda_stream)
    except (AttributeError, RuntimeError):  # Half imported, or built without CUDA.
        return None


def _of_cupy(device: Any) -> int | None:
    """CuPy's current stream."""
    cupy = sys.modules.get("cupy")
    try:
        return None if cupy is None else int(cupy.cuda.get_current_stream().ptr)
    except (AttributeError, RuntimeError):
        return None


def on_stream(device: Any, stream: int, run: Callable[[], Any]) -> Any:
    """What `run` gives with TVM's work enqueued on a stream."""
    import tvm_ffi

    with tvm_ffi.use_raw_stream(device, stream):
        return run()

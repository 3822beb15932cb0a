# SPDX-License-Identifier: Apache-2.0
"""Runs while the caller captures a CUDA graph, over a CUDA runtime that only says so."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
import tvm_ffi

from memc.ir.errors import UsageError
from memc.runtime.cuda import cuda_runtime

DEVICE = tvm.cuda(0)


class Runtime:
    """The CUDA runtime's calls: streams that are captured, and the error of asking for the default one."""

    def __init__(self, captured: set[int], implicit: bool = False) -> None:
        self.captured, self.implicit, self.error = captured, implicit, 0

    def cudaStreamIsCapturing(self, stream: ctypes.c_void_p, status: Any) -> int:
        if not stream.value and self.implicit:
            self.error = cuda_runtime.CAPTURE_IMPLICIT
            return self.error
        status._obj.value = int((stream.value or 0) in self.captured)
        return 0

    def cudaGetLastError(self) -> int:
        found, self.error = self.error, 0
        return found


def torch_on(stream: int) -> Any:
    cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=lambda _: SimpleNamespace(cuda_stream=stream))
    return SimpleNamespace(cuda=cuda)


@pytest.mark.parametrize(
    ("own", "torchs", "captured", "found"),
    [(0, None, set(), None), (5, None, {5}, 5), (0, 7, {7}, 7), (0, 7, {9}, None), (5, 7, {5, 7}, 5), (5, 7, {7}, 7)],
)
def test_the_stream(
    monkeypatch: pytest.MonkeyPatch, own: int, torchs: int | None, captured: set[int], found: int | None
) -> None:
    monkeypatch.setattr(cuda_runtime, "_loaded", [Runtime(captured)])
    monkeypatch.setitem(sys.modules, "torch", None if torchs is None else torch_on(torchs))
    with tvm_ffi.use_raw_stream(DEVICE, own):
        assert cuda_runtime.captured_stream(DEVICE) == found


def test_the_default_stream_beside_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime({7}, implicit=True)
    monkeypatch.setattr(cuda_runtime, "_loaded", [runtime])
    monkeypatch.setitem(sys.modules, "torch", torch_on(7))
    assert cuda_runtime.captured_stream(DEVICE) == 7
    monkeypatch.setitem(sys.modules, "torch", torch_on(8))
    with pytest.raises(UsageError, match="make the captured one current") as caught:
        cuda_runtime.captured_stream(DEVICE)
    assert "\n" not in str(caught.value) and runtime.error == 0


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_runtime, "_loaded", [Runtime(set())])
    for torch in (SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))):
        monkeypatch.setitem(sys.modules, "torch", torch)
        assert cuda_runtime.captured_stream(DEVICE) is None

# SPDX-License-Identifier: Apache-2.0
"""Device memory of outputs, over a fake CUDA runtime: it comes back, fails in one line, and leaves no error behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import ctypes, tvm, tvm_ffi
from memc import native
native.load()
fake = ctypes.CDLL({fake!r})
tvm_ffi.get_global_func("memc.cuda.set_runtime")({fake!r})
make, require = (tvm_ffi.get_global_func(f"memc.cuda.{{name}}") for name in ("output", "require"))
output = lambda *shape: make(0, tvm_ffi.dtype("float32"), tvm_ffi.Shape(shape))
state = lambda name: ctypes.c_int.in_dll(fake, name).value
def fails(call):
    try:
        call()
    except RuntimeError as error:
        return str(error).strip().splitlines()[-1]
fake.fake_limit(1 << 20)
fake.cudaSetDevice(3)
"""


def in_process(fake: Path, body: str) -> None:
    given = {**os.environ, "MEMC_CUDA_DRIVER": str(fake)}
    program = PROGRAM.format(fake=str(fake)) + body
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=given)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_outputs_come_back(fake: Path) -> None:
    in_process(
        fake,
        """
first = output(16, 16)
assert type(first) is tvm.runtime.Tensor and first.shape == (16, 16) and str(first.dtype) == "float32"
assert str(first.device) == str(tvm.cuda(0)) and first.is_contiguous() and state("fake_live") == 1
address = first.data_ptr()
second = output(16, 16)
assert second.data_ptr() != address and state("fake_live") == 2
del first
assert output(16, 16).data_ptr() == address
assert output().data_ptr() and output(0, 4).data_ptr()
assert state("fake_device") == 3 and state("fake_mode") == 0
""",
    )


def test_what_does_not_fit(fake: Path) -> None:
    in_process(
        fake,
        """
held = output(1 << 16)
assert "cudaMalloc of" in fails(lambda: output(1 << 20)) and "out of memory" in fails(lambda: output(1 << 20))
assert "cudaMalloc of 2097152 bytes: out of memory" in fails(lambda: require(0, 1 << 21))
assert fake.cudaGetLastError() == 0 and state("fake_device") == 3 and state("fake_mode") == 0
require(0, 1 << 19)
assert state("fake_live") == 1
""",
    )


def test_what_waits_is_given_up_for_what_is_needed(fake: Path) -> None:
    in_process(
        fake,
        """
kept = [output(1 << 16) for _ in range(3)]
del kept
assert state("fake_live") >= 3
large = output(200_000)
assert state("fake_live") == 1 and fake.cudaGetLastError() == 0
""",
    )


@pytest.mark.parametrize("mode", [0, 1])
def test_memory_is_taken_while_streams_are_captured(fake: Path, mode: int) -> None:
    in_process(fake, f"fake.fake_capture({mode})\nassert output(8).data_ptr() and state('fake_mode') == 0\n")

# SPDX-License-Identifier: Apache-2.0
"""GPUs that estimates are made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memc.ir.errors import UsageError
from memc.ir.messages import nearest, shown

MIB = 2**20


@dataclass(frozen=True)
class Gpu:
    """A device, and what a process takes of it outside the framework's allocator."""

    name: str
    total: int
    """Bytes that the driver reports."""
    outside: int
    """Bytes of the context, and of kernels and libraries that a training process has loaded."""
    outside_inference: int
    """The same of a process that does not train."""
    context: int
    """Of these, bytes of the context and the kernels that it loads: without what handles of libraries hold."""
    measured: str
    """Where the figures are from."""

    @property
    def from_data_sheet(self) -> bool:
        """Whether nobody has measured the figures."""
        return "data sheet" in self.measured


BLAS_HANDLE = 64 * MIB
"""Bytes of the device for each handle of cuBLAS on an H200; a process that trains has two."""
DNN_HANDLE = 8 * MIB
"""Bytes of the device for each handle of cuDNN."""

_H200_OUTSIDE = 804_061_184
_H200_INFERENCE = 724_369_408
_H200_CONTEXT = _H200_OUTSIDE - 2 * (BLAS_HANDLE + DNN_HANDLE)
_DATA_SHEET = "memory as in the data sheet, the rest as on an H200"

GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "h200",
            143_156 * MIB,
            _H200_OUTSIDE,
            _H200_INFERENCE,
            _H200_CONTEXT,
            "measured: 117 jobs of PyTorch 2.11 with CUDA 13.0 under driver 580, of which 90 % lie within 16 MiB",
        ),
        Gpu(
            "h100",
            85_029_158_912,
            1252 * MIB,
            1177 * MIB,
            1252 * MIB - 2 * (BLAS_HANDLE + DNN_HANDLE),
            "measured: 15 jobs of PyTorch 2.11 on an H100 80GB",
        ),
        Gpu("a100", 80 * 2**30, _H200_OUTSIDE, _H200_INFERENCE, _H200_CONTEXT, _DATA_SHEET),
        Gpu("rtx4090", 24 * 2**30, _H200_OUTSIDE, _H200_INFERENCE, _H200_CONTEXT, _DATA_SHEET),
    )
}

DEFAULT = GPUS["h200"]


def gpu_named(name: str) -> Gpu:
    """Raises UsageError for a GPU that is not known."""
    if name.lower() in GPUS:
        return GPUS[name.lower()]
    near = nearest(name, GPUS) or f"; there are: {', '.join(GPUS)}"
    raise UsageError(f"gpu: expected a GPU that memc knows, got {shown(name)}{near}")

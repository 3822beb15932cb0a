# SPDX-License-Identifier: Apache-2.0
"""What the phantom device tells of a GPU: to PyTorch as the CUDA runtime does, and to cuDNN, which plans for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memc.estimation.gpus import BLAS_HANDLE, DNN_HANDLE, Gpu

FOLDER = Path(__file__).resolve().parents[1] / "data/gpus"


def properties(gpu: Gpu) -> dict[str, Any]:
    """What is known of a GPU, by the names of cudaDeviceProp; clocks in kHz, sizes in bytes."""
    found: dict[str, Any] = json.loads((FOLDER / f"{gpu.name}.json").read_text())
    return found


def description(gpu: Gpu, count: int = 1) -> str:
    """The lines that the phantom device reads: `key value`. `count`: of devices."""
    known = properties(gpu)
    about = known.pop("about")
    assert isinstance(about, str)
    values: Mapping[str, Any] = {
        **known,
        "count": count,
        "outsideContext": gpu.context,
        "outsideBlasHandle": BLAS_HANDLE,
        "outsideDnnHandle": DNN_HANDLE,
        "cudnn": json.dumps(_cudnn(known)),
    }
    return "".join(f"{key} {value}\n" for key, value in values.items())


def _cudnn(known: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as cuDNN's device descriptor has them."""
    return {
        "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": known["regsPerBlock"],
        "multiProcessorCount": known["multiProcessorCount"],
        "warpSize": 32,
        "maxSharedMemoryPerBlock": known["sharedMemPerBlock"],
        "maxSharedMemoryPerBlockOptin": known["sharedMemPerBlockOptin"],
        "reservedSharedMemoryPerBlock": known["reservedSharedMemPerBlock"],
        "maxRegistersPerSM": known["regsPerMultiprocessor"],
        "maxCtasPerSM": known["maxBlocksPerMultiProcessor"],
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": known["maxThreadsPerMultiProcessor"],
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": known["clockRate"],
        "memClockRateKHz": known["memoryClockRate"],
        "l2CacheSize": known["l2CacheSize"],
        "deviceName": known["name"],
        "deviceVer": 100 * known["major"] + 10 * known["minor"],
        "driverVer": known["driverVersion"],
        "totalGlobalMem": known["totalGlobalMem"],
        "cudaDeviceId": 0,
    }

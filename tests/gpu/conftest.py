# SPDX-License-Identifier: Apache-2.0
"""What tests on a GPU need."""

from __future__ import annotations

import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def arch() -> str:
    """The first GPU's, such as sm_90. Skips where there is none, or no nvcc."""
    if shutil.which("nvidia-smi") is None or shutil.which("nvcc") is None:
        pytest.skip("needs an NVIDIA GPU and nvcc")
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True)
    lines = done.stdout.split()
    if done.returncode != 0 or not lines:
        pytest.skip("needs an NVIDIA GPU")
    return f"sm_{lines[0].replace('.', '')}"

# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles: `ci` (default) and `nightly`, chosen with MEMC_HYPOTHESIS_PROFILE or --hypothesis-profile. Kernels are
compiled by each test that needs them, not taken from an earlier one's. Tests marked `phantom` need a Python with PyTorch."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", _COMMON, max_examples=200)
settings.register_profile("nightly", _COMMON, max_examples=2000)
os.environ["MEMC_KERNEL_CACHE"] = "off"
settings.load_profile(os.environ.get("MEMC_HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `phantom` where no such Python is named."""
    if os.environ.get("MEMC_PHANTOM_PYTHON"):
        return
    skipped = pytest.mark.skip(reason="MEMC_PHANTOM_PYTHON names no Python with PyTorch")
    for item in items:
        if item.get_closest_marker("phantom"):
            item.add_marker(skipped)

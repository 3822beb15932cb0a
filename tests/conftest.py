# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles: `ci` (default) and `nightly`, chosen with MEMC_HYPOTHESIS_PROFILE or --hypothesis-profile. Kernels are
compiled by each test that needs them, not taken from an earlier one's."""

from __future__ import annotations

import os

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

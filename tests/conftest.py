# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles: `ci` (default) and `nightly`, chosen with MEMC_HYPOTHESIS_PROFILE or --hypothesis-profile."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("ci", max_examples=200, print_blob=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("nightly", max_examples=2000, print_blob=True, **_COMMON)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("MEMC_HYPOTHESIS_PROFILE", "ci"))

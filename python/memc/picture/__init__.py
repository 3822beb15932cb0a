# SPDX-License-Identifier: Apache-2.0
"""Pictures of plans: `memc report` and `memc.write_report`, what they read, and the page and files that they write."""

from .outputs import write_report

__all__ = ["write_report"]

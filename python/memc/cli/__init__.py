# SPDX-License-Identifier: Apache-2.0
"""The `memc` command: one module per verb, thin over the Python API."""

from .app import main

__all__ = ["main"]

# SPDX-License-Identifier: Apache-2.0
"""Passes that choose the precision of values and of library calls."""

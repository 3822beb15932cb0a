# SPDX-License-Identifier: Apache-2.0
"""Measurements and comparisons of what was compiled: bench, verify, compare, times of ops."""

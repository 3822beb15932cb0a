# SPDX-License-Identifier: Apache-2.0
"""Passes that state the same values by other ops."""

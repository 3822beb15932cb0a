# SPDX-License-Identifier: Apache-2.0
"""Passes that recompute values instead of keeping them."""

# SPDX-License-Identifier: Apache-2.0
"""Passes that put several kernels into one launch."""

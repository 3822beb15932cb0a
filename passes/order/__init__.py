# SPDX-License-Identifier: Apache-2.0
"""Passes that order the ops."""

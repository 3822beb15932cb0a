# SPDX-License-Identifier: Apache-2.0
"""Passes that give values their bytes: aliases, sharing, addresses."""

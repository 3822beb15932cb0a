# SPDX-License-Identifier: Apache-2.0
"""The artifact's format: reading and writing it."""

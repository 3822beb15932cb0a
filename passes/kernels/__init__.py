# SPDX-License-Identifier: Apache-2.0
"""Passes that choose what one kernel computes, by which library, with what workspace."""

# SPDX-License-Identifier: Apache-2.0
"""Stretches of ops that run in slices, so that what is large between them exists one slice at a time."""

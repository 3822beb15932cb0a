# SPDX-License-Identifier: Apache-2.0
"""Passes that make a training step of a model."""

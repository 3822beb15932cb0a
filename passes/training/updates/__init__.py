# SPDX-License-Identifier: Apache-2.0
"""What each optimizer computes: one rule for each, in the form of PyTorch where it has the optimizer."""

# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs to IR: `.pt2` files, which are read without PyTorch, and exported programs in memory (`importer.py`)."""

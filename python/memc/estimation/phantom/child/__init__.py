# SPDX-License-Identifier: Apache-2.0
"""What runs in the Python that has PyTorch, where memc need not be: `serve.py` is a program, and the others are its parts."""

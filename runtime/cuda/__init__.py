# SPDX-License-Identifier: Apache-2.0
"""What only CUDA needs at run time."""

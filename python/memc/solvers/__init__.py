# SPDX-License-Identifier: Apache-2.0
"""Typed doors to the native solvers: problems of numbers, which know no values of the IR."""

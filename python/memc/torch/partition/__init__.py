# SPDX-License-Identifier: Apache-2.0
"""Joint graphs of AOT autograd, split into a forward and a backward that keep a budget of bytes."""

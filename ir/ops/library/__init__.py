# SPDX-License-Identifier: Apache-2.0
"""Which ops the libraries' kernels compute, and with what workspaces."""

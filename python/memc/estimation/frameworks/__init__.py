# SPDX-License-Identifier: Apache-2.0
"""Framework models: what each op allocates, keeps for the backward pass, and when it lets go. One file each."""

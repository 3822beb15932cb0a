# SPDX-License-Identifier: Apache-2.0
"""Integer programs solved by CP-SAT: what the searches are held against."""

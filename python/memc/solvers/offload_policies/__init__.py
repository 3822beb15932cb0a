# SPDX-License-Identifier: Apache-2.0
"""Published policies of what leaves the arena while a training step runs, simulated on a problem of recomputation and copies."""

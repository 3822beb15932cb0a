# SPDX-License-Identifier: Apache-2.0
"""`memc estimate`: how much GPU memory a framework's job takes, before it runs.

Every source yields allocation `Events`; simulated allocators tell what they take.
"""

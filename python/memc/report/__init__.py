# SPDX-License-Identifier: Apache-2.0
"""What a compilation reports."""

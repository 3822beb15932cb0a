# SPDX-License-Identifier: Apache-2.0
"""Loading and running an artifact."""

# SPDX-License-Identifier: Apache-2.0
"""What the definitions of several ops share."""

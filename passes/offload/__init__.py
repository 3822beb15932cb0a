# SPDX-License-Identifier: Apache-2.0
"""Values copied out of the arena and back while ops run."""

# SPDX-License-Identifier: Apache-2.0
"""In which order the axes of images lie in memory."""

# SPDX-License-Identifier: Apache-2.0
"""The ONNX importer."""

from .importer import import_onnx

__all__ = ["import_onnx"]

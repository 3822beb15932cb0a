# SPDX-License-Identifier: Apache-2.0
"""The text form of the IR: grammar, parser, printer."""

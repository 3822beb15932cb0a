# SPDX-License-Identifier: Apache-2.0
"""The intermediate representation: types, values, ops, functions, modules, their text and their meaning."""

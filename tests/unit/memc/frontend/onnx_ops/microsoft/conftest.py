# SPDX-License-Identifier: Apache-2.0
"""What the tests of onnxruntime's own ops share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def same(same_as_ort: Callable[..., None]) -> Callable[..., None]:
    """`same_as_ort` for ops of com.microsoft."""
    return functools.partial(same_as_ort, domain="com.microsoft")


@pytest.fixture
def run(run_node: Callable[..., Any]) -> Callable[..., Any]:
    """`run_node` for ops of com.microsoft."""
    return functools.partial(run_node, domain="com.microsoft")
